// line_editor.h: messages that a person types: with keys that edit, a history, and pasted lines that stay together.
//
// Without a terminal it reads lines of stdin as they are. Only line_editor.cpp knows libedit.
// Ownership: puts the terminal back when it is destroyed. Thread rules: one per program.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "cli/commands/stdin_lines.h"

namespace kvtide {

class LineEditor {
 public:
  // history: file that keeps what was typed for the next time; empty: none.
  explicit LineEditor(const std::string& history);
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  // One message, without its last line feed; lines that were pasted at once are one. nullopt at the end. Throws Error:
  // io, cancelled (Ctrl-C).
  std::optional<std::string> next();

 private:
  struct Terminal;
  std::unique_ptr<Terminal> terminal_;  // null without one that can edit
  StdinLines lines_;
  bool shows_prompt_;
};

}  // namespace kvtide
