"""A Jupyter kernel "simulated-mps": this Python with the simulated MPS device turned on.

`python -m tests.simulated_mps.kernel` installs it for this environment alone (beside the kernel
`python3`), so that `pytest --nbmake --nbmake-kernel=simulated-mps` and JupyterLab find it.
"""

import sys
import tempfile
from pathlib import Path

from ipykernel.kernelspec import write_kernel_spec
from jupyter_client.kernelspec import KernelSpecManager

from . import environment
from .build import library

NAME = "simulated-mps"


def install(prefix: str = sys.prefix) -> Path:
    """Install the kernel under ``prefix`` and return its folder; an older one is replaced.

    Raises ``SimulationError`` where the device cannot be compiled: a kernel that dies at its first
    ``import torch`` would not say why.
    """
    library()
    with tempfile.TemporaryDirectory() as folder:
        # BOOK_DEVICE: a chapter in this kernel is meant to run on mps, whatever make test set.
        overrides = {
            "display_name": "Python (simulated MPS)",
            "env": {**environment(), "BOOK_DEVICE": "mps"},
        }
        specification = write_kernel_spec(str(Path(folder) / NAME), overrides)
        return Path(KernelSpecManager().install_kernel_spec(specification, NAME, prefix=prefix))


if __name__ == "__main__":
    print(install())
