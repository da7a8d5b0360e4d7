"""A pass of serving: prefill and decode on one device, their time and memory."""
