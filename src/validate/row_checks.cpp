#include <algorithm>

#include "base/text.h"
#include "validate/inspection.h"

namespace kvtide {

void check_rows(Inspection& in) {
  if (!in.judges_rows()) {
    in.add_check("rows of the state", Outcome::skipped,
                 in.shape.gives_rows ? "the reference has none" : "this model does not show its rows");
    return;
  }
  double worst = 1.0;
  std::int64_t compared = 0, missing = 0;
  const bool isolated = !in.isolated.empty();
  const std::vector<Run>& runs = isolated ? in.isolated : in.chained;
  for (std::size_t s = 0; s < runs.size(); ++s)
    for (int layer = 0; layer < static_cast<int>(runs[s].rows.size()); ++layer) {
      const HeldRows& found = runs[s].rows[static_cast<std::size_t>(layer)];
      const HeldRows& wanted = in.wanted(s, isolated).rows[static_cast<std::size_t>(layer)];
      // A window may have let go of what none of its queries sees.
      const auto window = in.shape.layers[static_cast<std::size_t>(layer)].window;
      const Pos needed_from = window ? std::max<Pos>(0, runs[s].tokens - *window) : 0;
      for (Pos t = std::max(needed_from, found.first); t < runs[s].tokens; ++t)
        for (std::int64_t head = 0; head < wanted.kv_heads; ++head) {
          if (t >= found.first + found.rows) {
            ++missing;
            in.row_differences.push_back({s, isolated, layer, t, 0.0});
            break;
          }
          for (const bool keys : {true, false}) {
            const Likeness row = keys ? likeness(found.key(head, t), wanted.key(head, t))
                                      : likeness(found.value(head, t), wanted.value(head, t));
            ++compared;
            worst = std::min(worst, row.cosine);
            if (!isolated && !in.courses[s].judges(layer, t)) continue;
            if (!alike(row, std::min(in.options.row_gate, in.gate_of(t))))
              in.row_differences.push_back({s, isolated, layer, t, row.cosine});
          }
        }
      if (needed_from < found.first) {
        missing += found.first - needed_from;
        in.row_differences.push_back({s, isolated, layer, needed_from, 0.0});
      }
    }
  in.add_check("rows of the state", in.row_differences.empty() ? Outcome::passed : Outcome::failed,
               cat(compared, " compared, worst cosine ", cosine_text(worst),
                   missing > 0 ? cat(", ", missing, " missing") : ""));
}

}  // namespace kvtide
