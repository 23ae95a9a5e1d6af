"""``python -m tests.chart`` writes ``k8s/chart`` from the manifests."""

from tests.chart.files import write

if __name__ == "__main__":
    write()
