"""Draws the floors of the house and who includes whom, as SVG or as Graphviz text. Used by check_floors.py."""

WIDTH, ROW, BOX_HEIGHT, BOX_WIDTH = 760, 92, 52, 210


def levels_of(below: dict[str, set[str]]) -> list[list[str]]:
    """Floors from the bottom up; floors that do not see each other share a level."""
    level: dict[str, int] = {}

    def height(floor: str) -> int:
        if floor not in level:
            level[floor] = 1 + max((height(other) for other in below[floor]), default=-1)
        return level[floor]

    for floor in below:
        height(floor)
    # text sees only base but stands beside state, which is where a reader looks for it.
    if "text" in level and "state" in level:
        level["text"] = level["state"]
    rows: dict[int, list[str]] = {}
    for floor, row in level.items():
        rows.setdefault(row, []).append(floor)
    return [rows[row] for row in sorted(rows)]


def dot(below, edges, files, lines) -> str:
    out = ["digraph floors {", "  rankdir=BT; node [shape=box];"]
    for row in levels_of(below):
        names = " ".join(f'"{floor}";' for floor in row)
        out.append(f"  {{ rank=same; {names} }}")
    out += [f'  "{floor}" [label="{floor}\\n{files[floor]} files, {lines[floor]} lines"];' for floor in below]
    for (user, used), count in sorted(edges.items()):
        colour = "" if used in below[user] else ", color=red"
        out.append(f'  "{used}" -> "{user}" [dir=back, label="{count}"{colour}];')
    return "\n".join([*out, "}", ""])


def svg(below, edges, files, lines) -> str:
    rows = levels_of(below)
    height = ROW * len(rows) + 40
    place = {}
    for number, row in enumerate(rows):
        for column, floor in enumerate(row):
            x = WIDTH * (column + 1) / (len(row) + 1)
            place[floor] = (x, height - 30 - BOX_HEIGHT / 2 - ROW * number)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif">',
        '<rect width="100%" height="100%" fill="#ffffff"/>',
    ]
    levels = {floor: number for number, row in enumerate(rows) for floor in row}
    for (user, used), count in sorted(edges.items()):
        (x1, y1), (x2, y2) = place[user], place[used]
        # An edge that skips levels swings out, so that it does not run through the boxes between.
        skipped = abs(levels[user] - levels[used])
        side = -1 if (x1 + x2) / 2 <= WIDTH / 2 else 1
        bend = 0 if skipped <= 1 else side * (90 + 28 * skipped)
        colour = "#7a8aa0" if used in below[user] else "#d02020"
        middle_x, middle_y = (x1 + x2) / 2 + bend, (y1 + y2) / 2
        thick = min(4.0, 0.8 + count / 8)
        out.append(f'<path d="M{x1:.0f} {y1:.0f} Q{middle_x:.0f} {middle_y:.0f} {x2:.0f} {y2:.0f}" fill="none" '
                   f'stroke="{colour}" stroke-width="{thick:.1f}" stroke-opacity="0.6"/>')
    for floor, (x, y) in place.items():
        out.append(f'<rect x="{x - BOX_WIDTH / 2:.0f}" y="{y - BOX_HEIGHT / 2:.0f}" width="{BOX_WIDTH}" '
                   f'height="{BOX_HEIGHT}" rx="6" fill="#eef3fa" stroke="#34557a"/>')
        out.append(f'<text x="{x:.0f}" y="{y - 4:.0f}" text-anchor="middle" font-size="17" fill="#14293f">{floor}</text>')
        out.append(f'<text x="{x:.0f}" y="{y + 16:.0f}" text-anchor="middle" font-size="12" fill="#5a6b7f">'
                   f'{files[floor]} files, {lines[floor]} lines</text>')
    return "\n".join([*out, "</svg>", ""])
