// report.h: what a benchmark measured, as a table for people and as JSON for programs.
//
// A line is a number with its unit and, where there is one, the figure it is held against. Ownership: a plain
// value.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

namespace kvtide::bench {

inline double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

template <class Work>
double seconds(const Work& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return seconds_since(start);
}

inline double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

class Report {
 public:
  explicit Report(std::string name) : name_(std::move(name)) {}

  void add(const std::string& what, double value, const std::string& unit) {
    lines_.push_back({what, value, unit, std::nullopt});
  }
  void at_most(const std::string& what, double value, const std::string& unit, double figure) {
    lines_.push_back({what, value, unit, figure, true, value <= figure});
  }
  void at_least(const std::string& what, double value, const std::string& unit, double figure) {
    lines_.push_back({what, value, unit, figure, false, value >= figure});
  }

  // The table; and JSON into a file when a path is given. Returns the exit status: 1 when the file cannot be
  // written, not when a figure is missed, because a busy machine misses them.
  int print(const char* json_path) const {
    std::printf("%s\n", name_.c_str());
    for (const Line& line : lines_) {
      std::printf("  %-62s %12.3f %-6s", line.what.c_str(), line.value, line.unit.c_str());
      if (line.figure)
        std::printf(" %s %g: %s", line.most ? "at most" : "at least", *line.figure,
                    line.holds ? "holds" : "MISSED");
      std::printf("\n");
    }
    if (json_path == nullptr) return 0;
    std::FILE* file = std::fopen(json_path, "w");
    if (file == nullptr) {
      std::fprintf(stderr, "%s: cannot be written\n", json_path);
      return 1;
    }
    std::fprintf(file, "{\"name\": \"%s\", \"lines\": [", name_.c_str());
    for (std::size_t i = 0; i < lines_.size(); ++i) {
      const Line& line = lines_[i];
      std::fprintf(file, "%s\n  {\"what\": \"%s\", \"value\": %.6g, \"unit\": \"%s\"", i == 0 ? "" : ",",
                   line.what.c_str(), line.value, line.unit.c_str());
      if (line.figure)
        std::fprintf(file, ", \"%s\": %g, \"holds\": %s", line.most ? "at_most" : "at_least", *line.figure,
                     line.holds ? "true" : "false");
      std::fprintf(file, "}");
    }
    std::fprintf(file, "\n]}\n");
    return std::fclose(file) == 0 ? 0 : 1;
  }

 private:
  struct Line {
    std::string what;
    double value;
    std::string unit;
    std::optional<double> figure;
    bool most = false, holds = false;
  };

  std::string name_;
  std::vector<Line> lines_;
};

}  // namespace kvtide::bench
