#include "cli/commands/line_editor.h"

#include <histedit.h>
#include <langinfo.h>
#include <unistd.h>

#include <cerrno>
#include <clocale>
#include <cstdlib>
#include <cstring>
#include <cwchar>

#include "base/text.h"
#include "cli/commands/interrupt.h"
#include "cli/output/terminal.h"
#include "kvtide/error.h"

namespace kvtide {
namespace {

constexpr int kHistorySize = 1000;
constexpr const char* kStopped = "stopped; the conversation ends here";
// A terminal that knows bracketed paste puts these around what is pasted.
constexpr std::string_view kPasteOn = "\x1b[?2004h", kPasteOff = "\x1b[?2004l";
constexpr std::wstring_view kPasteEnd = L"\x1b[201~";
constexpr wchar_t kReplacement = 0xfffd;

bool can_edit() {
  const char* term = std::getenv("TERM");
  return stdin_is_terminal() && ::isatty(STDERR_FILENO) == 1 && term != nullptr && *term != '\0' &&
         std::strcmp(term, "dumb") != 0;
}

// libedit asks the locale how wide characters are and how to write them; texts are UTF-8 here.
void take_utf8_locale() {
  if (std::setlocale(LC_CTYPE, "") != nullptr && std::strcmp(::nl_langinfo(CODESET), "UTF-8") == 0) return;
  std::setlocale(LC_CTYPE, "C.UTF-8");
}

// 1, 0 at the end, -1 after a failure: what libedit expects.
int read_byte(unsigned char& byte) {
  for (;;) {
    wait_for_input(STDIN_FILENO);
    if (interrupted()) return -1;
    const ssize_t got = ::read(STDIN_FILENO, &byte, 1);
    if (got >= 0) return static_cast<int>(got);
    if (errno != EINTR) return -1;
  }
}

// libedit's own reader would try once more after Ctrl-C.
int read_character(EditLine*, wchar_t* character) {
  unsigned char byte = 0;
  if (const int got = read_byte(byte); got != 1) return got;
  const int more = byte < 0x80 ? 0 : byte >= 0xf0 ? 3 : byte >= 0xe0 ? 2 : byte >= 0xc0 ? 1 : -1;
  if (more < 0) {
    *character = kReplacement;
    return 1;
  }
  char text[] = {static_cast<char>(byte), 0, 0, 0};
  for (int i = 1; i <= more; ++i) {
    if (const int got = read_byte(byte); got != 1) return got;
    text[i] = static_cast<char>(byte);
  }
  std::mbstate_t state{};
  const std::size_t used = std::mbrtowc(character, text, static_cast<std::size_t>(more) + 1, &state);
  if (used == static_cast<std::size_t>(-1) || used == static_cast<std::size_t>(-2)) *character = kReplacement;
  return 1;
}

// Everything up to the end of the paste goes into the line, its line feeds included.
unsigned char take_paste(EditLine* editor, int) {
  std::wstring text;
  wchar_t character = 0;
  while (!text.ends_with(kPasteEnd)) {
    if (::el_wgetc(editor, &character) != 1) return CC_EOF;
    text += character == L'\r' ? L'\n' : character == L'\t' ? L' ' : character;
  }
  text.resize(text.size() - kPasteEnd.size());
  while (text.ends_with(L'\n')) text.pop_back();
  return text.empty() || ::el_winsertstr(editor, text.c_str()) == 0 ? CC_REFRESH : CC_ERROR;
}

char* prompt_of(EditLine*) {
  static char prompt[] = "> ";
  return prompt;
}

void write_to_terminal(std::string_view text) { prompt_on_terminal(text); }

}  // namespace

struct LineEditor::Terminal {
  EditLine* editor = nullptr;
  History* history = nullptr;
  std::string path;

  explicit Terminal(const std::string& file) : path(file) {
    take_utf8_locale();
    editor = ::el_init("kvtide", stdin, stderr, stderr);
    history = ::history_init();
    if (editor == nullptr || history == nullptr) {
      close();
      throw Error(ErrorCode::io, "the terminal cannot be edited on; TERM=dumb reads plain lines");
    }
    HistEvent event;
    ::history(history, &event, H_SETSIZE, kHistorySize);
    ::history(history, &event, H_SETUNIQUE, 1);
    if (!path.empty()) ::history(history, &event, H_LOAD, path.c_str());
    ::el_set(editor, EL_PROMPT, prompt_of);
    ::el_set(editor, EL_EDITOR, "emacs");
    ::el_set(editor, EL_HIST, ::history, history);
    ::el_set(editor, EL_GETCFN, read_character);
    ::el_set(editor, EL_ADDFN, "paste", "takes what is pasted", take_paste);
    const struct {
      const char *keys, *does;
    } bindings[] = {{"\x1b[200~", "paste"},
                    {"^R", "em-inc-search-prev"},
                    {"\x1b[H", "ed-move-to-beg"},
                    {"\x1b[F", "ed-move-to-end"},
                    {"\x1b[1~", "ed-move-to-beg"},
                    {"\x1b[4~", "ed-move-to-end"},
                    {"\x1b[3~", "ed-delete-next-char"},
                    {"\x1b[1;5D", "ed-prev-word"},
                    {"\x1b[1;5C", "em-next-word"}};
    for (const auto& [keys, does] : bindings) ::el_set(editor, EL_BIND, keys, does, nullptr);
  }
  ~Terminal() { close(); }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  // As in a shell: Ctrl-C gives up a line that was begun, and ends the talk where there is none.
  std::optional<std::string> next() {
    int length = 0;
    const char* line = read_line(length);
    while (interrupted() && has_text()) {
      forget_interrupt();
      write_to_terminal("^C\n");
      line = read_line(length);
    }
    stop_if_interrupted(kStopped);
    if (line == nullptr || length <= 0) {
      write_to_terminal("\n");
      return std::nullopt;
    }
    std::string text(line, static_cast<std::size_t>(length));
    if (text.ends_with('\n')) text.pop_back();
    HistEvent event;
    if (text.find_first_not_of(" \t\n") != text.npos) ::history(history, &event, H_ENTER, text.c_str());
    return text;
  }

 private:
  const char* read_line(int& length) {
    ::el_resize(editor);  // the window may have another size than at the last message
    write_to_terminal(kPasteOn);
    const char* line = ::el_gets(editor, &length);
    write_to_terminal(kPasteOff);
    return line;
  }

  bool has_text() const {
    const LineInfo* line = ::el_line(editor);
    return line != nullptr && line->lastchar > line->buffer;
  }

  void close() {
    HistEvent event;
    // A history that cannot be kept is no reason to say anything.
    if (history != nullptr && !path.empty()) ::history(history, &event, H_SAVE, path.c_str());
    if (history != nullptr) ::history_end(history);
    if (editor != nullptr) ::el_end(editor);
  }
};

LineEditor::LineEditor(const std::string& history)
    : terminal_(can_edit() ? std::make_unique<Terminal>(history) : nullptr),
      shows_prompt_(stdin_is_terminal() && ::isatty(STDERR_FILENO) == 1) {}

LineEditor::~LineEditor() = default;

std::optional<std::string> LineEditor::next() {
  if (terminal_) return terminal_->next();
  if (shows_prompt_) prompt_on_terminal("> ");
  return lines_.next();
}

}  // namespace kvtide
