// indices.h: what is known of the whole numbers of a program before it runs: addresses of slices, shapes, positions.
//
// A number is a constant, or something unknown plus a constant: "position[0]" + 3. Two that read the same are the same number
// in one call. That is enough to say which rows a slice covers, and whether a second one covers the same.
// Ownership: refers to a function, which must outlive it.
// Thread rules: one caller.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "coreml/program/program.h"

namespace kvtide::coreml {

struct Term {
  std::string base;           // empty: a constant
  std::int64_t offset = 0;    // added to it, or the constant
  bool through_half = false;  // it was a number of 16 bits with a point on its way
  bool last = false;          // the last element of an input whose length differs from call to call

  bool is_constant() const { return base.empty(); }
  bool same(const Term& other) const { return base == other.base && offset == other.offset; }
};

using Terms = std::vector<Term>;

// One axis of a slice: rows [begin, end).
struct AxisSpan {
  Term begin, end;
  bool whole = false;
  bool squeezed = false;
};

class Indices {
 public:
  explicit Indices(const Function& function);

  // The elements of a small tensor of whole numbers in order; empty: nothing is known of it, or it is large.
  const Terms& of(const std::string& name) const;
  const Terms* of(const Operation& operation,
                  std::string_view parameter) const;  // nullptr: not given or not known

  // What slice_by_index and slice_update cover, axis by axis; nullopt: not known.
  std::optional<std::vector<AxisSpan>> spans(const Operation& slice) const;

  const Operation* producer(const std::string& name) const;  // nullptr: an input
  const ValueType* type(const std::string& name) const;      // nullptr: unknown

 private:
  Terms evaluate(const Operation& operation) const;
  Terms arithmetic(const Operation& operation) const;
  Terms picked(const Operation& operation) const;
  Terms sliced(const Operation& operation) const;
  Terms shape_of(const Operation& operation) const;
  Terms unknown(const std::string& name, const ValueType& type) const;

  std::map<std::string, Terms> terms_;
  std::map<std::string, const Operation*> producers_;
  std::map<std::string, ValueType> types_;
  std::map<const Value*, Terms> in_place_;      // constants that no operation makes
  std::map<std::string, std::string> written_;  // by state: the value it holds
};

// Names of what an operation takes, those of its blocks included.
std::vector<std::string> names_read(const Operation& operation);
// The one name bound to a parameter; empty: not given, a constant in place, several.
std::string bound_name(const Operation& operation, std::string_view parameter);
// "slice_update 'k_new'": for messages.
std::string operation_name(const Operation& operation);

}  // namespace kvtide::coreml
