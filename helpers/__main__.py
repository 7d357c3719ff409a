"""``python -m helpers doctor | data | record | preflight``: the book's tools as commands."""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

DATASETS = ("mnist", "cifar10")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 if all is well, 1 if not, 2 if it cannot run."""
    parser = _parser()
    chosen = parser.parse_args(arguments)
    run: Callable[[argparse.Namespace], int] | None = chosen.run
    if run is None:
        parser.print_help()
        return 0
    return run(chosen)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m helpers", description="The tools of the book PyTorch on Apple Silicon."
    )
    parser.set_defaults(run=None)
    commands = parser.add_subparsers(title="commands", metavar="command")
    doctor = commands.add_parser("doctor", help="what is wrong with this setup, and what mends it")
    doctor.set_defaults(run=_doctor)
    data = commands.add_parser("data", help="download the full MNIST and CIFAR-10")
    data.add_argument(
        "names", nargs="*", metavar="name", help=f"{' or '.join(DATASETS)} (default: both)"
    )
    data.set_defaults(run=_data, parser=data)
    record = commands.add_parser("record", help="measure this machine and write a record of it")
    record.add_argument("--device", help="mps, cuda or cpu (default: the best that works)")
    record.add_argument("--folder", type=Path, help="to write to (default: data/records)")
    record.set_defaults(run=_record)
    preflight = commands.add_parser("preflight", help="whether a program for MPS would run there")
    preflight.add_argument("--json", action="store_true", help="print the report as JSON")
    preflight.add_argument(
        "--device",
        choices=("cpu", "meta"),
        default="cpu",
        help="meta: shapes only, for what is larger than this machine's memory (module:function)",
    )
    preflight.add_argument("target", help="script.py or module:function")
    preflight.add_argument("arguments", nargs=argparse.REMAINDER, help="of the script")
    preflight.set_defaults(run=_preflight)
    return parser


# Each command imports what it needs by itself, so that --help answers at once.


def _doctor(_: argparse.Namespace) -> int:
    from helpers.doctor import diagnose

    diagnosis = diagnose()
    diagnosis.show()
    return int(diagnosis.failed)


def _data(chosen: argparse.Namespace) -> int:
    """Download each dataset; one that fails does not keep the next from being tried."""
    for name in chosen.names:
        if name not in DATASETS:  # argparse's own `choices` refuses an empty list
            chosen.parser.error(f"no dataset is called '{name}': choose from {', '.join(DATASETS)}")
    from helpers.data import DataError, download

    failed = False
    for name in chosen.names or DATASETS:
        try:
            print(f"{name}: {download(name)}")
        except DataError as error:
            print(f"{name}: {error}", file=sys.stderr)
            failed = True
    return int(failed)


def _record(chosen: argparse.Namespace) -> int:
    """Run the suite; the file is written at its end, so an interrupted run leaves nothing."""
    from helpers import records
    from helpers.device import DeviceUnavailableError, pick_device
    from helpers.record_suite import record

    folder = chosen.folder or records.FOLDER
    try:
        records.check_folder(folder)
        device = pick_device(chosen.device)
        print(f"Measuring on {device}: three minutes at most. Ctrl-C stops it and leaves nothing.")
        made = record(device, say=lambda line: print(line, flush=True))
        path = records.save_record(made, folder)
    except (DeviceUnavailableError, ValueError) as error:  # RecordError is a ValueError
        print(error, file=sys.stderr)
        return 1
    print(f"{made}\n{len(made.measurements)} measurements in {made.seconds:.0f} s: {path}")
    return 0


def _preflight(chosen: argparse.Namespace) -> int:
    from helpers.preflight.command import check

    shapes = chosen.device == "meta"
    return check(chosen.target, chosen.arguments, as_json=chosen.json, shapes=shapes)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
