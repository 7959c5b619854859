// state_export.cpp: the rows of a snapshot as plain arrays, in a safetensors file or as .npy files.
#include <algorithm>
#include <cctype>
#include <filesystem>
#include <functional>
#include <system_error>

#include "base/json/json.h"
#include "base/text.h"
#include "cli/commands/state_files.h"
#include "cli/output/npy_writer.h"
#include "cli/output/output_file.h"
#include "cli/output/terminal.h"
#include "kvtide/error.h"
#include "state/arrays/layout_rows.h"

namespace kvtide {
namespace {

std::int64_t elements(const LayoutArray& array) {
  std::int64_t count = 1;
  for (const std::int64_t extent : array.shape) count *= extent;
  return count;
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text;
  for (const std::int64_t extent : shape) text += cat(text.empty() ? "" : ", ", extent);
  return cat("[", text, "]");
}

std::string_view as_text(const std::byte* bytes, std::size_t size) {
  return {reinterpret_cast<const char*>(bytes), size};
}

// The elements of an array, head after head.
void write_rows(OutputFile& file, const StateRows& rows, const LayoutArray& array) {
  const auto row = static_cast<std::size_t>(row_bytes(rows.image(), array));
  std::vector<std::byte> head_rows(static_cast<std::size_t>(array.rows.size()) * row);
  const std::string zeros(static_cast<std::size_t>(array.capacity - array.rows.size()) * row, '\0');
  for (const LayoutBlock& block : array.blocks)
    for (int head = 0; head < rows.image().spec.layers[static_cast<std::size_t>(block.layer)].kv_heads;
         ++head) {
      read_rows(rows, array, block, head, head_rows.data());
      file.write(as_text(head_rows.data(), head_rows.size()));
      file.write(zeros);
    }
}

// Arrays that would say less than the state does are made only when that was asked for.
void check_exact(const StateLayout& layout, bool exact_only) {
  if (exact_only) return;
  if (layout.left_out > 0)
    throw Error(ErrorCode::invalid_argument, cat("plain arrays cannot say it all: ", layout.why,
                                                 "; --exact-only exports the positions from ",
                                                 layout.left_out, " on and leaves the others out"));
  if (layout.moved > 0)
    throw Error(ErrorCode::invalid_argument,
                cat("plain arrays cannot say it all: ", layout.moved,
                    " positions were moved; --exact-only exports their keys rotated to where they are seen"));
}

// The counter that stacked arrays come with.
std::int32_t past_length(const StateLayout& layout) {
  return static_cast<std::int32_t>(layout.arrays.front().rows.size());
}

template <class T>
std::string bytes_of(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

void write_safetensors(const std::string& path, const Snapshot& snapshot, const StateRows& rows,
                       const StateLayout& layout, std::string_view name) {
  Json header = Json::object(), metadata = Json::object();
  metadata.set("format", "kvtide-state").set("layout", name).set("position", cat(rows.image().position));
  for (const LayoutArray& array : layout.arrays)
    metadata.set(cat("first_position.", array.name), cat(array.rows.first));
  for (const auto& [key, value] : snapshot.extras.identity) metadata.set(cat("identity.", key), value);
  metadata.set("exact", snapshot.extras.exact ? "true" : "false")
      .set("tokens", Json::array(snapshot.extras.tokens).text(false));
  header.set("__metadata__", std::move(metadata));
  std::int64_t offset = 0;
  const auto add = [&](const std::string& key, const char* dtype, const std::vector<std::int64_t>& shape,
                       std::int64_t bytes) {
    Json item = Json::object();
    item.set("dtype", dtype)
        .set("shape", Json::array(shape))
        .set("data_offsets", Json::array(std::vector{offset, offset + bytes}));
    header.set(key, std::move(item));
    offset += bytes;
  };
  for (const LayoutArray& array : layout.arrays)
    add(array.name, array.dtype == DType::f16 ? "F16" : "F32", array.shape,
        dtype_bytes(array.dtype, elements(array)));
  if (name == "stacked") add("pastLen", "I32", {1}, 4);

  OutputFile file(path);
  std::string text = header.text(false);
  text.append((8 - text.size() % 8) % 8, ' ');
  file.write(bytes_of(static_cast<std::uint64_t>(text.size())));
  file.write(text);
  for (const LayoutArray& array : layout.arrays) write_rows(file, rows, array);
  if (name == "stacked") file.write(bytes_of(past_length(layout)));
  file.commit();
}

void write_npy(const std::string& path, const char* descr, const std::vector<std::int64_t>& shape,
               const std::function<void(OutputFile&)>& body) {
  OutputFile file(path);
  file.write(npy_header(descr, shape));
  body(file);
  file.commit();
}

void write_folder(const std::string& folder, const StateRows& rows, const StateLayout& layout,
                  std::string_view name) {
  std::error_code failure;
  std::filesystem::create_directories(folder, failure);
  if (failure) throw Error(ErrorCode::io, cat(folder, ": cannot make this folder: ", failure.message()));
  for (const LayoutArray& array : layout.arrays)
    write_npy(cat(folder, "/", array.name, ".npy"), array.dtype == DType::f16 ? "<f2" : "<f4", array.shape,
              [&](OutputFile& file) { write_rows(file, rows, array); });
  if (name == "stacked")
    write_npy(cat(folder, "/pastLen.npy"), "<i4", {1},
              [&](OutputFile& file) { file.write(bytes_of(past_length(layout))); });
}

// A folder where somebody wanted a file would be a surprise: x.bin is no folder's name, x, x/ and one that is there
// already are.
void check_target(const std::string& out) {
  const std::filesystem::path path(out);
  const std::string ending = path.extension().string();
  const bool names_a_file =
      std::any_of(ending.begin(), ending.end(), [](unsigned char c) { return std::isalpha(c); });
  std::error_code failure;
  if (ending == ".safetensors" || !names_a_file || std::filesystem::is_directory(path, failure)) return;
  throw Error(ErrorCode::invalid_argument,
              cat("--out ", out,
                  ": arrays are written as one file named *.safetensors, or as .npy files in a folder; "
                  "use ",
                  std::filesystem::path(path).replace_extension(".safetensors").string(), ", or ", out,
                  "/ for a folder of that name"));
}

}  // namespace

void export_state(Snapshot& snapshot, const Arguments& arguments) {
  const StateRequest& request = arguments.state;
  check_target(arguments.out);
  LayoutOptions options;
  const std::string_view name = request.layout.empty() ? std::string_view("unified") : request.layout;
  options.layout = *layout_from_name(name);
  if (!request.dtype.empty()) options.dtype = request.dtype == "f16" ? DType::f16 : DType::f32;
  options.capacity = request.capacity;
  const StateRows rows(snapshot.state);
  StateLayout layout;
  try {
    layout = plan_layout(rows.image(), options);
    check_exact(layout, request.exact_only);
  } catch (const Error& error) {
    throw Error(error.code(), cat(request.files[0], ": ", error.message()));
  }
  if (arguments.out.ends_with(".safetensors"))
    write_safetensors(arguments.out, snapshot, rows, layout, name);
  else
    write_folder(arguments.out, rows, layout, name);
  for (const LayoutArray& array : layout.arrays)
    say(cat(array.name, ": ", array.dtype == DType::f16 ? "float16 " : "float32 ", shape_text(array.shape),
            ", positions ", array.rows.first, " to ", array.rows.last));
  if (name == "stacked") say(cat("pastLen: int32 [1], ", past_length(layout)));
  if (layout.moved > 0) say(cat("rotated to where they are seen: the keys of ", layout.moved, " positions"));
  if (layout.left_out > 0) say(cat("left out: positions 0 to ", layout.left_out, ": ", layout.why));
}

}  // namespace kvtide
