// coreml.h: runs Core ML programs: packages (.mlpackage), compiled models (.mlmodelc) and MIL text, with their states.
//
//   CoremlModel model("zenz.mlpackage");
//   CoremlState state = model.make_state();
//   auto out = model.predict({{"input_ids", ids}, {"attention_mask", mask}}, &state);
//   out.at("logits");                                       // CoremlArray
//
// Values are rounded to the types that the program declares; sums are made in f32. Nothing here claims to give the bits of
// Apple's runtime.
// Ownership: a model owns its packed weights; a state owns its tensors and may be used with every function and every model that
// has states of those names, shapes and types.
// Errors: unsupported lists all operations that cannot be run, when a model is opened. invalid_argument: inputs or a state that
// do not fit, before anything is computed, or a program that does not fit its inputs. A call that throws has changed no state.
// Thread rules: one call at a time per model and per state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kvtide/error.h"

namespace kvtide {

enum class CoremlType { f16, f32, i32, i16, u16, i8, u8, boolean };
const char* coreml_type_name(CoremlType type) noexcept;  // "fp16", "int32": as MIL has them

// Elements without gaps, little endian, the last axis fastest.
struct CoremlArray {
  CoremlType type = CoremlType::f32;
  std::vector<std::int64_t> shape;
  std::vector<std::byte> bytes;
};

// An input or output of a function, or a state.
struct CoremlFeature {
  std::string name;
  CoremlType type = CoremlType::f32;
  std::vector<std::int64_t> shape;                // the default; -1: any size
  std::vector<std::vector<std::int64_t>> shapes;  // enumerated: all that are allowed, or empty
  // The least and the most of each axis, or empty: `shape` or `shapes` alone. A most of -1: any size.
  std::vector<std::pair<std::int64_t, std::int64_t>> ranges;
  bool optional = false;
};

struct CoremlFunction {
  std::string name;
  std::vector<CoremlFeature> inputs, outputs, states;
};

struct CoremlOptions {
  int threads = 0;       // 0: as many as the machine runs at once
  std::string kernels;   // "scalar", "avx2", ..; empty: the best
  std::string function;  // load this one only; empty: all
};

// What calls have cost since the model was opened.
struct CoremlReport {
  std::int64_t calls = 0;
  double seconds = 0.0;
  std::int64_t state_bytes_copied = 0;  // 0: every write went to where the state lies
  std::int64_t weight_bytes = 0;        // packed for products
};

class CoremlState {
 public:
  ~CoremlState();
  CoremlState(CoremlState&&) noexcept;
  CoremlState& operator=(CoremlState&&) noexcept;

  std::vector<std::string> names() const;
  std::int64_t bytes() const;
  CoremlArray read(std::string_view name) const;  // a copy
  // Replaces it. Floats of another type are rounded. Throws Error(invalid_argument): no such state, another shape.
  void write(std::string_view name, const CoremlArray& value);
  CoremlState fork() const;  // a copy of its own

 private:
  friend class CoremlModel;
  struct Impl;
  explicit CoremlState(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

class CoremlModel {
 public:
  // Throws Error: not_found, bad_format, unsupported.
  explicit CoremlModel(const std::string& path, const CoremlOptions& options = {});
  ~CoremlModel();
  CoremlModel(CoremlModel&&) noexcept;
  CoremlModel& operator=(CoremlModel&&) noexcept;

  const std::vector<CoremlFunction>& functions() const;
  const std::string& default_function() const;
  const CoremlFunction& function(std::string_view name = "") const;          // empty: the default
  const std::vector<std::pair<std::string, std::string>>& metadata() const;  // what its author wrote there

  // Zeros for the states of a function; with none, an empty state.
  CoremlState make_state(std::string_view function = "") const;
  // What `from` holds of the first `position` tokens, in the states of a package of the same model whose states are longer or
  // shorter: 256 tokens, 512, and back. Of each state one axis may differ, that of the tokens; behind them are zeros. States of
  // the same shape are copied whole, and a state of one element is a counter, which becomes `position`: so the same model takes
  // tokens back. Throws Error: invalid_argument, context_full (a state without room for them), unsupported (a counter that
  // cannot say the number).
  CoremlState make_state_from(const CoremlState& from, std::int64_t position,
                              std::string_view function = "") const;
  // A snapshot: a safetensors file that knows its package. Throws Error: io; not_found, bad_format, invalid_argument (states of
  // another package).
  void save_state(const CoremlState& state, const std::string& path) const;
  CoremlState load_state(const std::string& path, std::string_view function = "") const;
  // SHA-256 of program and weights, in hex. The first call reads all their bytes.
  const std::string& identity() const;

  // One value for every input; outputs by name. A function with states needs `state`. `go_on` is asked between operations:
  // false ends the call with Error(cancelled), and the state is as it was.
  std::map<std::string, CoremlArray> predict(const std::map<std::string, CoremlArray>& inputs,
                                             CoremlState* state = nullptr, std::string_view function = "",
                                             const std::function<bool()>& go_on = {});
  CoremlReport report() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// What lint says of a package; docs/coreml.md explains the rules.
struct CoremlFinding {
  std::string severity;   // "error", "warning", "hint"
  std::string rule;       // "state-never-written"
  std::string function;   // empty: of the package
  std::string operation;  // empty: of the function
  std::size_t line = 0;   // of the operation in the program's text; 0: of the function
  std::string message;    // one sentence
};

// What is wrong with a package, or a folder of several, as far as programs say, the worst first; nothing is run. `tokenizer`: a folder whose
// config.json and tokenizer.json are compared, too; empty: none. Throws Error: not_found, bad_format, unsupported.
std::vector<CoremlFinding> lint_coreml(const std::string& package, const std::string& tokenizer = "");
// Whether it makes a difference how a text is cut into calls: a package, or a folder of several, reads a short text twice. What it
// cannot be asked is a finding, too. Throws Error: not_found, bad_format.
std::vector<CoremlFinding> lint_coreml_calls(const std::string& package, const CoremlOptions& options = {});

// What a package holds, as JSON: functions with inputs, outputs, states and operations by count; weights by type; metadata.
// Throws Error: not_found, bad_format, unsupported.
std::string inspect_coreml(const std::string& package);

// The weights of an export: as f16, or as integers with a scale for each matrix, each output, or each 32 inputs of an output.
enum class CoremlWeights { f16, int8_tensor, int8_channel, int4 };

struct CoremlExport {
  static constexpr int kEveryLayer = -1;

  // 0: one package. N: a folder with a package for the embedding, N for the layers, one for the head, and a manifest.json.
  int chunks = 0;
  std::int64_t least_tokens = 1, most_tokens = 4;  // of a call
  std::vector<std::int64_t> token_sizes = {};      // these only; empty: the range
  std::int64_t slots = 0;  // of the states; 0: 2048, or as many positions as the model has learned
  CoremlWeights weights = CoremlWeights::f16;
  bool replace = false;  // a package, or a folder of packages, that is there already
  int threads = 0;
  std::function<void(const std::string& package)> on_package =
      {};  // told before each; what it throws ends the export
};

// Writes stateful packages of a model (a GGUF file or a Hugging Face folder). `path` appears complete or not at all. Throws Error:
// invalid_argument (numbers that do not fit, `path` holds something), unsupported (an architecture that is not written), numeric (a
// weight that f16 cannot hold), io, and what loading a model throws.
void export_coreml(const std::string& model, const std::string& path, const CoremlExport& options = {});

}  // namespace kvtide
