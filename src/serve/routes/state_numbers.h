// state_numbers.h: the states of all prefix caches by one number each, as requests name them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include "serve/routes/service.h"

namespace kvtide::serve {

// Numbers are of all caches together: the model's, then the entry's.
std::int64_t state_number(std::size_t model, std::int64_t entry, std::size_t models);

// The number behind `front` in a path, up to the next slash. Throws Error(not_found).
std::int64_t number_in(std::string_view path, std::string_view front);

// Calls `action` with the entry, on the scheduler's thread. Throws Error(not_found) when there is none.
using EntryAction = std::function<void(std::size_t model, PrefixCache& cache, PrefixCache::Entry& entry)>;
void with_state(Service& service, std::int64_t number, const EntryAction& action);

// A fork of the state, for an answer of this model. Throws Error: not_found; invalid_argument, another model's.
std::shared_ptr<StartingPoint> starting_point(Service& service, std::size_t model, std::int64_t number);

}  // namespace kvtide::serve
