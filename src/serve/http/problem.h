// problem.h: what is wrong with a request, or with the server, as the bodies that clients of OpenAI and Anthropic read.
//
// Pure functions.
#pragma once

#include <string>

#include "kvtide/error.h"
#include "serve/http/message.h"

namespace kvtide::serve {

enum class Dialect { openai, anthropic };  // llama-server's clients read OpenAI's

struct Problem {
  int status = 400;
  std::string message;
  std::string param = {};  // the field that it is about; empty: none
  std::string code = {};   // "context_length_exceeded"; empty: none
  int retry_after = 0;     // seconds; 0: not said
};

// What became of a request that ended with this Error.
Problem problem_of(const Error& error);

// The body, one line of JSON.
std::string problem_body(const Problem& problem, Dialect dialect);
Response problem_response(const Problem& problem, Dialect dialect);

}  // namespace kvtide::serve
