// call.h: one operation as it is called: its arguments by the order of its table row, and room for its results.
//
// An operation of the table is a name, its parameters and a function. What a parameter is bound to was resolved at load: an
// operation finds tensors by number. A result is rounded to the type that the program declares; shapes are those of the real
// values, whatever the program says of them.
// Errors: `refuse` names the operation and where it stands.
#pragma once

#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "coreml/run/compressed.h"
#include "coreml/run/runtime.h"
#include "coreml/run/weight.h"

namespace kvtide::coreml {

// What a name of the program stands for while it runs.
struct Slot {
  Tensor tensor;
  std::string text;  // of a constant string
  std::shared_ptr<const Compressed>
      compressed;  // of a constant that stays packed; `tensor` has its shape and no bytes
  bool constant = false;
  bool of_package = false;  // the bytes are those of the package, which other functions see, too
  std::shared_ptr<const MappedFile> file;  // that the bytes of `tensor` lie in, if they lie in one
};

inline constexpr int kAbsent = -1;  // an optional parameter that was not given

struct StepOutput {
  int slot = 0;
  DataType dtype = DataType::none;
};

struct OperationRow;

// An operation of a program, ready to run.
struct Step {
  const OperationRow* row = nullptr;
  std::vector<std::vector<int>> arguments;  // by parameter: slots; empty: not given
  std::vector<StepOutput> outputs;
  std::vector<int> releases;             // slots that nobody needs behind this step
  std::string where;                     // "slice_update 'k_new' (operation 12 of main)"
  int state = kAbsent;                   // of read_state and write_state
  int onto = kAbsent;                    // the state whose memory a slice_update may write at once
  std::shared_ptr<const Weight> weight;  // the constant operand of a product, packed at load
  double seconds = 0.0;
};

// What was in a state before it was written in place, to be put back when a call fails.
class Journal;

class Call {
 public:
  Call(Runtime& runtime, const Step& called, std::span<Slot> slots, Journal* saves)
      : run(runtime), step(called), journal(saves), slots_(slots) {}

  Runtime& run;
  const Step& step;
  Journal* journal;
  bool in_place = false;  // the first argument's memory may be written: nobody else will look at it

  bool has(std::size_t parameter) const { return !step.arguments[parameter].empty(); }
  Slot& slot(std::size_t parameter) const {
    return slots_[static_cast<std::size_t>(step.arguments[parameter][0])];
  }
  const Tensor& in(std::size_t parameter) const { return slot(parameter).tensor; }
  const Tensor& in(std::size_t parameter, std::size_t i) const {
    return slots_[static_cast<std::size_t>(step.arguments[parameter][i])].tensor;
  }
  std::size_t count(std::size_t parameter) const { return step.arguments[parameter].size(); }

  std::int64_t number(std::size_t parameter) const;  // one whole number
  std::int64_t number(std::size_t parameter, std::int64_t otherwise) const;
  float real(std::size_t parameter) const;
  float real(std::size_t parameter, float otherwise) const;
  bool flag(std::size_t parameter, bool otherwise) const;
  std::vector<std::int64_t> numbers(std::size_t parameter) const;
  std::string_view text(std::size_t parameter, std::string_view otherwise) const;
  std::int64_t axis(std::size_t parameter, std::int64_t otherwise, std::int64_t rank) const;  // not negative
  std::vector<std::int64_t> axes(std::size_t parameter, std::int64_t rank) const;  // all when not given

  std::size_t results() const { return step.outputs.size(); }
  // Room for a result, of the declared type.
  const Tensor& make(Shape shape, std::size_t result = 0) const;
  // The same as a tensor that exists: its bytes are shared when the type is the declared one, else converted.
  void give(const Tensor& tensor, std::size_t result = 0) const;
  Tensor& out(std::size_t result = 0) const {
    return slots_[static_cast<std::size_t>(step.outputs[result].slot)].tensor;
  }

  [[noreturn]] void refuse(const std::string& why) const;
  // Refuses more elements than an address can say, and negative sizes.
  void check_shape(const Shape& shape) const;

 private:
  std::span<Slot> slots_;
};

struct Parameter {
  std::string_view name;
  enum class Need { required, optional, many } need = Need::required;
  // The parameters of a product may be constants that stay packed, or become panels.
  bool packed = false;
};

struct OperationRow {
  std::string_view type;
  std::vector<Parameter> parameters;
  void (*run)(Call& call);
};

// Parameters as one writes them: "x", "bias?", "values*", and "weight#" for one that may stay packed.
OperationRow operation(std::string_view type, std::initializer_list<std::string_view> parameters,
                       void (*run)(Call& call));

}  // namespace kvtide::coreml
