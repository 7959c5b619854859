// state_import.cpp: plain arrays back into a snapshot: the reverse of state_export.cpp.
#include <algorithm>
#include <charconv>

#include "base/mapped_file.h"
#include "base/text.h"
#include "cli/commands/input_text.h"
#include "cli/commands/state_files.h"
#include "cli/output/file_kind.h"
#include "cli/output/terminal.h"
#include "formats/safetensors.h"
#include "kvtide/error.h"
#include "state/arrays/layout_rows.h"

namespace kvtide {
namespace {

// Ids with anything but digits between them: "[1, 2, 3]", "1 2 3", a line each.
std::vector<TokenId> parse_ids(std::string_view text, const std::string& name) {
  std::vector<TokenId> ids;
  const char *at = text.data(), *end = text.data() + text.size();
  while (at != end) {
    if (*at < '0' || *at > '9') {
      if (std::string_view(" \t\r\n,[]").find(*at) == std::string_view::npos)
        throw Error(ErrorCode::bad_format,
                    cat(name, ": token ids are whole numbers, not ", quoted(std::string(1, *at))));
      ++at;
      continue;
    }
    TokenId id = 0;
    const auto [stopped, failure] = std::from_chars(at, end, id);
    if (failure != std::errc()) throw Error(ErrorCode::bad_format, cat(name, ": a token id is too large"));
    ids.push_back(id);
    at = stopped;
  }
  return ids;
}

class Import {
 public:
  Import(const Arguments& arguments, Snapshot base)
      : path_(arguments.state.files[0]),
        file_(path_),
        arrays_(SafeTensors::parse(file_.bytes(), path_)),
        base_(std::move(base)) {
    tokens(arguments.state.tokens);
    layout_name_ = layout_name();
  }

  // A snapshot like the base, with the tokens and rows of the file.
  Snapshot make() {
    StateImage image = empty_image();
    const StateLayout layout =
        plan_layout(image, {.layout = *layout_from_name(layout_name_), .dtype = {}, .capacity = {}});
    for (const LayoutArray& array : layout.arrays) check(array, image);
    KvState state(image);
    for (const LayoutArray& array : layout.arrays) fill(state, array);
    return {std::move(state), {base_.extras.identity, base_.extras.exact, tokens_, {}}};
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    throw Error(ErrorCode::bad_format, cat(path_, ": ", why));
  }

  void tokens(const std::string& path) {
    if (!path.empty()) {
      const InputText text = read_text_file(path);
      tokens_ = parse_ids(text.text, text.name);
    } else if (const auto found = arrays_.metadata.find("tokens"); found != arrays_.metadata.end()) {
      tokens_ = parse_ids(found->second, path_);
    } else {
      throw Error(
          ErrorCode::invalid_argument,
          cat(path_, ": does not say which tokens its rows belong to; give their ids with --tokens FILE"));
    }
    if (tokens_.empty()) refuse("there are no tokens, and so there is no state to make");
  }

  std::string_view layout_name() const {
    if (has("kv_cache")) return "unified";
    if (has("kv_cache_local") || has("kv_cache_global")) return "split";
    if (has("layers.0.k_state")) return "per-layer";
    if (has("keyCache")) return "stacked";
    refuse(
        "holds no arrays of a known layout (kv_cache; kv_cache_local and kv_cache_global; layers.0.k_state, "
        "...; "
        "keyCache and valueCache)");
  }
  bool has(const char* name) const { return arrays_.tensors.contains(name); }

  const SafeTensor& tensor(const std::string& name) const {
    const auto found = arrays_.tensors.find(name);
    if (found == arrays_.tensors.end()) refuse(cat("lacks the array ", quoted(name)));
    return found->second;
  }

  DType type_of(const std::string& name) const {
    const std::string& dtype = tensor(name).dtype;
    if (dtype != "F16" && dtype != "F32")
      refuse(cat("array ", quoted(name), " is ", dtype, ", not F16 or F32"));
    return dtype == "F16" ? DType::f16 : DType::f32;
  }

  StateImage empty_image() const {
    StateImage image;
    image.spec = base_.state.spec();
    const auto count = static_cast<std::int64_t>(tokens_.size());
    if (image.spec.rolling) refuse_base("keeps a rolling window, which plain arrays do not hold");
    const bool apart = layout_name_ == "per-layer" || layout_name_ == "stacked";
    const std::string keys = layout_name_ == "per-layer" ? "layers.0.k_state"
                             : layout_name_ == "stacked" ? "keyCache"
                             : layout_name_ == "unified" ? "kv_cache"
                             : has("kv_cache_global")    ? "kv_cache_global"
                                                         : "kv_cache_local";
    image.spec.key_type = type_of(keys);
    image.spec.value_type =
        apart ? type_of(layout_name_ == "stacked" ? "valueCache" : "layers.0.v_state") : image.spec.key_type;
    image.spec.capacity = std::max(image.spec.capacity, count);
    image.position = count;
    image.segments = {{0, count, 0}};
    for (const LayerSpec& layer : image.spec.layers) {
      const Pos first = layout_name_ == "split" && layer.window ? std::max<Pos>(0, count - *layer.window) : 0;
      image.released.push_back(first);
      image.forgotten.push_back(0);
      image.runs.push_back({{first, count}});
    }
    return image;
  }

  [[noreturn]] void refuse_base(const std::string& why) const {
    throw Error(ErrorCode::invalid_argument, cat("--like: that snapshot ", why));
  }

  // The file's array is the planned one, with room for at least as many rows.
  void check(const LayoutArray& array, const StateImage& image) const {
    const SafeTensor& found = tensor(array.name);
    std::string theirs, wanted;
    bool fits = found.shape.size() == array.shape.size();
    const std::size_t rows = array.shape.size() - 2;
    for (std::size_t i = 0; i < found.shape.size(); ++i) {
      theirs += cat(i == 0 ? "" : ", ", found.shape[i]);
      fits = fits && (i == rows ? found.shape[i] >= array.rows.size() : found.shape[i] == array.shape[i]);
    }
    for (std::size_t i = 0; i < array.shape.size(); ++i)
      wanted +=
          cat(i == 0 ? "" : ", ", i == rows ? cat("at least ", array.rows.size()) : cat(array.shape[i]));
    if (!fits)
      refuse(cat("array ", quoted(array.name), " is [", theirs, "]; ", image.position,
                 " tokens of a memory like that of --like need [", wanted, "]"));
    if (type_of(array.name) != array.dtype)
      refuse(cat("array ", quoted(array.name), " is ", found.dtype, ", unlike the first one"));
    const auto first = arrays_.metadata.find(cat("first_position.", array.name));
    if (first != arrays_.metadata.end() && first->second != cat(array.rows.first))
      refuse(cat("array ", quoted(array.name), " begins at position ", first->second, ", where ",
                 image.position, " tokens need the rows from position ", array.rows.first, " on"));
  }

  void fill(KvState& state, const LayoutArray& array) const {
    const SafeTensor& found = tensor(array.name);
    try {
      write_array(state, array, found.bytes.data(), found.shape[found.shape.size() - 2]);
    } catch (const Error& error) {
      refuse(error.message());
    }
  }

  std::string path_;
  MappedFile file_;
  SafeTensors arrays_;
  Snapshot base_;
  std::vector<TokenId> tokens_;
  std::string_view layout_name_;
};

}  // namespace

void import_state(Snapshot base, const Arguments& arguments) {
  check_snapshot_place(arguments.out);
  Snapshot snapshot = Import(arguments, std::move(base)).make();
  PosixFiles files;
  save_snapshot(files, arguments.out, snapshot.state, snapshot.extras);
  say(cat(arguments.out, ": ", count_text(snapshot.state.position()), " tokens, ",
          bytes_text(snapshot.state.held_bytes())));
}

}  // namespace kvtide
