"""The memory of a running process."""

from pathlib import Path


def resident(pid, figure="Rss"):
    """Bytes, or None when the process is gone. `Anonymous` leaves out pages of files: weights come in as words are met."""
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith(figure + ":"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    return None
