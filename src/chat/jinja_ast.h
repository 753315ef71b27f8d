// SPDX-License-Identifier: MIT
//
// The parsed template.
//
// There is one node type for expressions and one for statements; the comment beside a kind lists
// the fields that it uses. Names are indexes into Program::names, so that scopes compare integers.

#ifndef QSF_CHAT_JINJA_AST_H_
#define QSF_CHAT_JINJA_AST_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "chat/jinja_value.h"

namespace qsf::jinja {

using NameId = std::uint32_t;

enum class ExprKind : std::uint8_t {
  kConstant,   // constant
  kName,       // name
  kList,       // args
  kTuple,      // args
  kDict,       // args: key, value, key, value ...
  kNot,        // args[0]
  kNegate,     // args[0]
  kBinary,     // args[0], args[1], text: the operator
  kConcat,     // args: joined as strings, the operator ~
  kAnd,        // args[0], args[1]
  kOr,         // args[0], args[1]
  kCompare,    // args, operators between them
  kCondition,  // args: condition, value, and the other value or null
  kAttribute,  // args[0], text
  kSubscript,  // args[0], args[1]
  kSlice,      // args: begin, end, step, each may be null; only as args[1] of kSubscript
  kCall,       // args[0]: callee; call
  kFilter,     // args[0]: input, null in a filter block; text; call
  kTest,       // args[0]; text; call
};

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

struct CallSyntax {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> keywords;
  ExprPtr star;  // *args, null where there is none
};

enum class Comparison : std::uint8_t { kEq, kNe, kLt, kLe, kGt, kGe, kIn, kNotIn };

struct Expr {
  ExprKind kind;
  int line;
  int height = 1;  // of the tree below, itself included
  NameId name = 0;
  std::string text = {};
  Value constant = {};
  std::vector<ExprPtr> args = {};
  std::vector<Comparison> operators = {};
  CallSyntax call = {};
};

// Target of an assignment: a name, an attribute of a namespace, or a tuple of targets.
struct Target {
  NameId name = 0;
  std::string attribute;  // of the namespace called `name`; empty for a name
  std::vector<Target> items;
  bool is_tuple = false;
};

struct Stmt;
using Block = std::vector<Stmt>;

enum class StmtKind : std::uint8_t {
  kData,        // value: a constant
  kOutput,      // value
  kIf,          // branches
  kFor,         // target, value, condition, body, otherwise
  kSet,         // target, value
  kSetBlock,    // target, body, value: a chain of filters or null
  kMacro,       // name, parameters, body
  kCallBlock,   // parameters, value: the call, body
  kFilter,      // value: a chain of filters, body
  kGeneration,  // body
  kBreak,
  kContinue,
};

struct Parameter {
  NameId name;
  ExprPtr fallback;  // null: none
};

struct Branch {
  ExprPtr condition;  // null: else
  Block body;
};

struct Stmt {
  StmtKind kind;
  int line;
  ExprPtr value = {};
  ExprPtr condition = {};
  Target target = {};
  NameId name = 0;
  Block body = {};
  Block otherwise = {};
  std::vector<Branch> branches = {};
  std::vector<Parameter> parameters = {};
  // Of a macro: whether its body reads `caller`, the body of a call block, and the name's number.
  bool takes_caller = false;
  NameId caller = 0;
};

struct Program {
  std::vector<std::string> names;
  Block body;
};

}  // namespace qsf::jinja

#endif  // QSF_CHAT_JINJA_AST_H_
