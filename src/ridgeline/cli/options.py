"""What verbs are told alike: one flag has one name, one form and one explanation wherever it stands."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import typer

Text: TypeAlias = str | None
"""As it was typed; None where nothing was."""

JobOrModel: TypeAlias = Annotated[
    str, typer.Argument(metavar="JOB|MODEL", help="A job file (.toml), a model's name, or its config.json.")
]
GlobalBatch: TypeAlias = Annotated[Text, typer.Option(metavar="N", help="Sequences a step.")]
BatchTokens: TypeAlias = Annotated[Text, typer.Option(metavar="N", help="Tokens a step instead: 4Mi.")]
SeqLen: TypeAlias = Annotated[Text, typer.Option(metavar="N", help="Tokens a sequence.")]
Tokens: TypeAlias = Annotated[Text, typer.Option(metavar="N", help="Length of the run, for days and dollars: 15T.")]
Remat: TypeAlias = Annotated[Text, typer.Option(metavar="POLICY", help="full, minimal, or context=device,...")]
Quantization: TypeAlias = Annotated[Text, typer.Option(metavar="KIND", help="fp8, int8 or none.")]
GradientAccumulation: TypeAlias = Annotated[Text, typer.Option(metavar="N", help="Micro-steps a step.")]
VocabTiling: TypeAlias = Annotated[Text, typer.Option(metavar="N", help="Chunks of logits and loss.")]
WeightsDtype: TypeAlias = Annotated[Text, typer.Option(metavar="DTYPE", help="Of the weights: f32 or bf16.")]
ComputeDtype: TypeAlias = Annotated[Text, typer.Option(metavar="DTYPE", help="Of the matmuls.")]
Optimizer: TypeAlias = Annotated[Text, typer.Option(metavar="KIND", help="adamw, adamh, muon, muonh or adafactor.")]
MuDtype: TypeAlias = Annotated[Text, typer.Option(metavar="DTYPE", help="Of the first moment.")]
NuDtype: TypeAlias = Annotated[Text, typer.Option(metavar="DTYPE", help="Of the second moment.")]
OptimizerState: TypeAlias = Annotated[
    Text, typer.Option(metavar="PLACE", help="Of both moments: device or host; chosen if left out.")
]
Calibration: TypeAlias = Annotated[
    Text,
    typer.Option(
        metavar="FOLDER", help="Efficiencies of your own: what calibrate --output wrote; for serve, with --serving."
    ),
]
Figures: TypeAlias = Annotated[Text, typer.Option(metavar="catalog|scaling-book", help="Whose figures of the chip.")]
Hop: TypeAlias = Annotated[Text, typer.Option(metavar="TIME", help="Least time of a hop: 1us.")]
Save: TypeAlias = Annotated[Text, typer.Option(metavar="FILE", help="Write the job to FILE (.toml).")]
Plot: TypeAlias = Annotated[Text, typer.Option(metavar="FILE", help="Draw it: .html, .svg or .png.")]
ForcePlot: TypeAlias = Annotated[bool, typer.Option("--force", help="Let --plot replace a file.")]
ForceSaveAndPlot: TypeAlias = Annotated[bool, typer.Option("--force", help="Let --save and --plot replace a file.")]
Explain: TypeAlias = Annotated[bool, typer.Option("--explain", help="Show where the numbers come from.")]
Json: TypeAlias = Annotated[bool, typer.Option("--json", help="Print one JSON object, in base units.")]
