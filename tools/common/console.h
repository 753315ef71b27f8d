// SPDX-License-Identifier: MIT
//
// What the tools ask of the system for their process: the standard streams, interrupts, the heap.

#ifndef QSF_TOOLS_COMMON_CONSOLE_H_
#define QSF_TOOLS_COMMON_CONSOLE_H_

#include <cstddef>
#include <string_view>

namespace qsf_tools {

enum class StandardStream { kInput, kOutput, kError };

// Opens what the program was started without of standard input, output and error, so that no other
// file becomes one of them: an input at its end, an output that refuses, an error that goes
// nowhere. On Windows all of them carry bytes as they are, UTF-8 also to a console.
void open_standard_streams();

bool is_terminal(StandardStream stream);

// Reads standard input. Returns the bytes read, 0 at its end, or a negative errno; EINTR after an
// interrupt.
std::ptrdiff_t read_input(char* to, std::size_t n_bytes);

// Writes to standard output. Returns the bytes written, or a negative errno.
std::ptrdiff_t write_output(std::string_view text);

// Lets writing to a pipe without a reader fail instead of ending the program, and the same for a
// file that may not become longer.
void ignore_write_signals();

// Has threads share one heap: a heap for each costs memory that the plan does not count.
void share_one_heap();

// Calls `handler` on an interrupt (Ctrl-C); it may do what a signal handler may. kFirst: a second
// one ends the program. kAll: also when the system asks the program to end, each time.
enum class Interrupts { kFirst, kAll };
void on_interrupt(Interrupts which, void (*handler)());

// Keeps the code that a command which only runs models does not use out of the memory of this
// process, where the system can be told.
void set_conversion_code_aside();

}  // namespace qsf_tools

#endif  // QSF_TOOLS_COMMON_CONSOLE_H_
