"""The option ``--cluster``: a topology file, or words such as ``nodes=302,leaf=16``."""

from pathlib import Path

from berth.cli.output import WRONG_USE, CommandError
from berth.formats.clusters.cluster_text import ClusterTextError, read_cluster
from berth.formats.clusters.topology_file import TopologyError
from berth.schemas.workload import ClusterPlan


def cluster_of(words: str) -> ClusterPlan:
    """Cluster of a file or of a text.

    Raises:
        CommandError: It cannot be read.
    """
    path = Path(words)
    try:
        if "=" in words and not path.is_file():
            return read_cluster(words)
        return read_cluster(path.read_text("utf-8"), name=path.name)
    except OSError as error:
        raise CommandError(
            f"--cluster: {words} cannot be read ({error.strerror}), expected a topology file, or words such as"
            " nodes=302,leaf=16",
            code=WRONG_USE,
        ) from error
    except UnicodeDecodeError as error:
        raise CommandError(f"--cluster: {words} is no text in UTF-8 ({error})", code=WRONG_USE) from error
    except ClusterTextError as error:
        raise CommandError(f"--{error}", code=WRONG_USE) from error
    except TopologyError as error:
        raise CommandError(*(f"{words}: {line}" for line in str(error).splitlines()), code=WRONG_USE) from error
