"""``sottovoce export``: a saved run as a file for other programs."""

from __future__ import annotations

from pathlib import Path

import click

from ..answers.saved import SavedModel
from ..estimators.exporting import Linear, to_onnx
from ..util import files
from .options import FILE, say, takes

_OPTIONS = [
    say("--onnx", "Write an ONNX graph here, from raw columns to answers.", type=FILE, required=True, name="place"),
    say("--replicate", "Which repetition's model to use.", type=int, default=0),
]


@click.command()
@click.argument("run", type=FILE)
@takes(_OPTIONS)
def export(run: Path, place: Path, replicate: int) -> None:
    """Write the model in RUN for other programs, with the schema's encoding in it.

    RUN is a file written by `train --save`.  The graph's inputs are the schema's columns, each of shape (rows, 1):
    texts for categories, else double precision; a vector is one input.  It answers as `sottovoce predict` does.  Needs
    the extra `sottovoce[onnx]`.

    \b
      sottovoce export run.json --onnx model.onnx
    """
    files.check("onnx", place, reads=(run,))
    model = Linear.of(SavedModel.load(run, replicate))
    files.write("onnx", place, to_onnx(model).SerializeToString())
    click.echo(f"saved to {place}")
