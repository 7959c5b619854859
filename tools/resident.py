"""The resident set of a running process."""

from pathlib import Path


def resident(pid):
    """Bytes, or None when the process is gone."""
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Rss:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    return None
