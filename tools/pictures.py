"""Pictures of the measurements, for the plot_*.py beside this file: the same picture is the same file."""
import matplotlib

matplotlib.use("agg")
matplotlib.rcParams["svg.hashsalt"] = "kvtide"
matplotlib.rcParams["svg.fonttype"] = "none"  # text stays text: a third of the size
import matplotlib.pyplot as plt  # noqa: E402,F401


def save(figure, path):
    """As an SVG or PNG, by the name of the file; an SVG without its date."""
    figure.savefig(path, metadata={"Date": None} if str(path).endswith(".svg") else None, dpi=120)
