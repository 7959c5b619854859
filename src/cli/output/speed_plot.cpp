#include "cli/output/speed_plot.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/json/json_fields.h"
#include "base/text.h"
#include "cli/output/terminal.h"
#include "formats/text_file.h"
#include "kvtide/error.h"

namespace kvtide {
namespace {

constexpr double kWidth = 400, kHeight = 270, kLeft = 58, kRight = 14, kTop = 46, kBottom = 44;
constexpr double kMostDrawn = 1e12;  // a size that can be drawn
constexpr const char* kColours[] = {"#1f5fa8", "#d9822b", "#4b8b3b", "#8e5ea2"};
constexpr const char* kLimitColour = "#888888";

// 1, 2 or 5 times a power of ten: at most `most` steps reach `top`.
double step_for(double top, int most) {
  double step = std::pow(10.0, std::floor(std::log10(top / most)));
  for (const double factor : {1.0, 2.0, 5.0, 10.0})
    if (top / (step * factor) <= most) return step * factor;
  return step * 10.0;
}

std::string label(double x, double y, std::string_view anchor, std::string_view text,
                  std::string_view colour = "#333333", std::string_view more = "") {
  return cat("<text x=\"", number_text(x, 1), "\" y=\"", number_text(y, 1), "\" text-anchor=\"", anchor,
             "\" fill=\"", colour, "\"", more, ">", markup_text(text), "</text>\n");
}

using Line = std::map<std::int64_t, double>;  // tokens per second by depth

// What the machine reached deep in a text it can reach nearer the start, too, where there is less to do.
Line falling(Line line) {
  double reached = 0.0;
  for (auto point = line.rbegin(); point != line.rend(); ++point)
    point->second = reached = std::max(reached, point->second);
  return line;
}

class Panel {
 public:
  Panel(double x, double y, std::string title) : x_(x), y_(y), title_(std::move(title)) {}

  void add(const std::string& engine, std::int64_t depth, double tok_s, double limit) {
    engines_[engine][depth] = tok_s;
    // Of several measurements of one limit the highest: a limit is what can be reached.
    if (limit > 0.0) limit_[depth] = std::max(limit_[depth], limit);
    deepest_ = std::max(deepest_, static_cast<double>(depth));
    top_ = std::max({top_, tok_s, limit});
  }

  std::string svg(const std::map<std::string, std::string>& colours) const {
    const double step = step_for(top_, 6), depth_step = step_for(std::max(1.0, deepest_), 5);
    std::string out = label(x_ + kLeft, y_ + 18, "start", title_, "#111111", " font-weight=\"bold\"");
    for (double value = 0.0; value <= top_ * 1.0001; value += step) {
      out += cat("<line x1=\"", number_text(x_ + kLeft, 1), "\" x2=\"", number_text(x_ + kWidth - kRight, 1),
                 "\" y1=\"", number_text(at_height(value), 1), "\" y2=\"", number_text(at_height(value), 1),
                 "\" stroke=\"#e4e4e4\"/>\n");
      out += label(x_ + kLeft - 6, at_height(value) + 4, "end",
                   count_text(static_cast<std::int64_t>(std::lround(value))));
    }
    for (double depth = 0.0; depth <= deepest_ * 1.0001; depth += depth_step)
      out += label(at_depth(depth), y_ + kHeight - kBottom + 16, "middle",
                   count_text(static_cast<std::int64_t>(std::lround(depth))));
    out +=
        label(x_ + (kLeft + kWidth - kRight) / 2, y_ + kHeight - 10, "middle", "depth, tokens held before");
    out += label(x_ + kLeft, y_ + 36, "start", "tokens per second", "#777777");
    double legend = x_ + kWidth - kRight;
    const auto draw = [&](const std::string& name, const Line& line, std::string_view colour, bool dashed) {
      std::string path;
      for (const auto& [depth, value] : line) {
        const std::string point =
            cat(number_text(at_depth(static_cast<double>(depth)), 1), ",", number_text(at_height(value), 1));
        path += (path.empty() ? "" : " ") + point;
        if (!dashed)
          out += cat("<circle cx=\"", number_text(at_depth(static_cast<double>(depth)), 1), "\" cy=\"",
                     number_text(at_height(value), 1), "\" r=\"3\" fill=\"", colour, "\"/>\n");
      }
      out += cat("<polyline points=\"", path, "\" fill=\"none\" stroke=\"", colour, "\" stroke-width=\"2\"",
                 dashed ? " stroke-dasharray=\"5 4\"" : "", "/>\n");
      out += label(legend, y_ + 36, "end", name, colour);
      legend -= 7.0 * static_cast<double>(name.size()) + 14.0;
    };
    if (!limit_.empty()) draw("limit", falling(limit_), kLimitColour, true);
    for (const auto& [engine, line] : engines_) draw(engine, line, colours.at(engine), false);
    return out;
  }

 private:
  double at_depth(double depth) const {
    return x_ + kLeft + (kWidth - kLeft - kRight) * depth / std::max(1.0, deepest_);
  }
  double at_height(double value) const {
    return y_ + kHeight - kBottom - (kHeight - kTop - kBottom) * value / (top_ > 0.0 ? top_ : 1.0);
  }

  double x_, y_;
  std::string title_;
  std::map<std::string, Line> engines_;
  Line limit_;
  double deepest_ = 0.0, top_ = 0.0;
};

}  // namespace

std::string speed_plot(std::span<const SpeedPoint> points) {
  std::vector<std::string> models;
  std::set<std::string> engines;
  for (const SpeedPoint& point : points) {
    if (std::find(models.begin(), models.end(), point.model) == models.end()) models.push_back(point.model);
    engines.insert(point.engine);
  }
  std::map<std::string, std::string> colours;
  for (const std::string& engine : engines) colours.emplace(engine, kColours[colours.size() % 4]);

  std::string body;
  for (std::size_t row = 0; row < models.size(); ++row)
    for (const bool reads : {true, false}) {
      const double y = kHeight * static_cast<double>(row);
      Panel panel(reads ? 0.0 : kWidth, y, cat(models[row], reads ? ": reading" : ": writing"));
      bool any = false;
      for (const SpeedPoint& point : points)
        if (point.model == models[row] && point.reads == reads) {
          panel.add(point.engine, point.depth, point.tok_s, point.limit_tok_s);
          any = true;
        }
      if (any) body += panel.svg(colours);
    }
  const double height = kHeight * static_cast<double>(std::max<std::size_t>(1, models.size()));
  return cat("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 ", number_text(2 * kWidth, 0), " ",
             number_text(height, 0), "\" font-family=\"sans-serif\" font-size=\"12\">\n",
             "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n", body, "</svg>\n");
}

std::vector<SpeedPoint> read_speed_points(const std::string& path) {
  const JsonValue json = JsonValue::parse(read_whole_text(path), path);
  if (json.list() == nullptr)
    throw Error(ErrorCode::bad_format, cat(path, ": must be a list of measured rows, not ", json.kind()));
  std::vector<SpeedPoint> points;
  for (const JsonValue& item : *json.list()) {
    const JsonFields row(item, cat(path, ": row ", points.size() + 1));
    const std::string test = row.required_text("test");
    if (test != "pp" && test != "tg")
      row.refuse(ErrorCode::bad_format, cat("test must be pp or tg, not ", quoted(test)));
    points.push_back({row.required_text("engine"), row.required_text("model"), test == "pp",
                      static_cast<std::int64_t>(row.real("depth", 0.0, kMostDrawn)),
                      row.real("tok_s", 0.0, kMostDrawn), row.real("limit_tok_s", 0.0, kMostDrawn, 0.0)});
  }
  return points;
}

}  // namespace kvtide
