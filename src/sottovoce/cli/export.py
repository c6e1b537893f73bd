"""``sottovoce export``: a saved run as a file for other programs."""

from __future__ import annotations

from pathlib import Path

import click

from ..answers.saved import SavedModel
from ..estimators.exporting import Linear, build_onnx_model
from ..util import files
from .options import FILE, decorate_with_options, make_option, saved_method_option

_OPTIONS = [
    make_option(
        "--onnx",
        "Write an ONNX graph here, from raw columns to answers.",
        type=FILE,
        required=True,
        name="place",
    ),
    make_option("--replicate", "Replicate whose model is used.", type=int, default=0),
    make_option(
        "--site",
        "Write one site's own model, or the average with the constant of one site: see `predict`.",
    ),
    saved_method_option(),
]


@click.command()
@click.argument("run", type=FILE)
@decorate_with_options(_OPTIONS)
def export(run: Path, place: Path, replicate: int, site: str | None) -> None:
    """Write the model in RUN for other programs, with the schema's encoding in it.

    RUN is a file written by `train --save`.  The graph's inputs are the schema's columns, each of
    shape (rows, 1): texts for categories, else double precision; a vector is one input.  It answers
    as `sottovoce predict` does; but where every site has a constant it has their average for all
    rows, or with --site that of one, as it does not read the site column.  Needs the extra
    `sottovoce[onnx]`.

    \b
      sottovoce export run.json --onnx model.onnx
    """
    files.check_writable_path("onnx", place, reads=(run,))
    saved = SavedModel.load(run, replicate, site)
    model = Linear.from_saved_model(saved)
    files.write_atomically("onnx", place, build_onnx_model(model).SerializeToString())
    if saved.only is None and saved.naming is not None and saved.naming.sites:
        click.echo(
            "Note: all rows get the average of the sites' constants; --site NAME takes one site's.",
            err=True,
        )
    click.echo(f"saved to {place}")
