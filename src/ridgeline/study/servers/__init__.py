"""What measured servers settle: passes, hosts and collectives of a chip under an engine, fitted as steps are."""
