// SPDX-License-Identifier: MIT
//
// The opcodes of pickle: those that a state dict needs, and the names of all, for messages.
//
// Based on: the table in Python's pickletools module, protocols 0 to 5.

#ifndef QSF_IMPORT_PYTORCH_PYTORCH_OPCODES_H_
#define QSF_IMPORT_PYTORCH_PYTORCH_OPCODES_H_

#include <cstdint>
#include <string>

namespace qsf {

// What the unpickler carries out. Every other byte is refused.
enum class PickleOpcode : std::uint8_t {
  kMark = '(',
  kStop = '.',
  kBinFloat = 'G',
  kBinInt = 'J',
  kBinInt1 = 'K',
  kBinInt2 = 'M',
  kNone = 'N',
  kBinPersId = 'Q',
  kReduce = 'R',
  kBinUnicode = 'X',
  kAppend = 'a',
  kBuild = 'b',
  kGlobal = 'c',
  kAppends = 'e',
  kBinGet = 'h',
  kLongBinGet = 'j',
  kBinPut = 'q',
  kLongBinPut = 'r',
  kSetItem = 's',
  kTuple = 't',
  kSetItems = 'u',
  kEmptyTuple = ')',
  kEmptyList = ']',
  kEmptyDict = '}',
  kProto = 0x80,
  kTuple1 = 0x85,
  kTuple2 = 0x86,
  kTuple3 = 0x87,
  kNewTrue = 0x88,
  kNewFalse = 0x89,
  kLong1 = 0x8a,
  kShortBinUnicode = 0x8c,
  kStackGlobal = 0x93,
  kMemoize = 0x94,
  kFrame = 0x95,
};

// Returns "REDUCE (0x52)", or "byte 0xff, which is no opcode of pickle". Threads: any.
std::string opcode_text(std::uint8_t code);

}  // namespace qsf

#endif  // QSF_IMPORT_PYTORCH_PYTORCH_OPCODES_H_
