// SPDX-License-Identifier: Apache-2.0
//
// fascore, the command line program. main() builds the command line from the table of sub-commands, lets CLI11
// understand it, runs what was chosen, and turns every way to fail into a message and an exit status (command.h).
#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <iostream>
#include <new>
#include <string>

#include "command.h"
#include "fascore/version.h"
#include "progress.h"

namespace fascore::cli {
namespace {

constexpr void (*commands[])(CLI::App&, Work&) = {add_check, add_score,   add_grad, add_verify,
                                                  add_bench, add_dropout, add_info};

constexpr const char* footer = R"(Examples:
  fascore check
  fascore grad problem.safetensors -o grads.safetensors --scale 0.125 --causal
  fascore verify --shape 1,8,512,64 --causal
  fascore bench --only full_4096_128
  fascore dropout --shape 1,2,3:5,8 --keep-prob 0.5 --seed 2
  fascore COMMAND --help

Exit status: 0 right; 1 the answer is no; 2 bad input, with a message on stderr; 130 stopped by Ctrl-C.)";

int complain(const std::string& message, int status) {
    std::fflush(stdout);
    fmt::print(stderr, "fascore: {}\n", message);
    return status;
}

// The status of a command whose output also arrived.
int written(int status) {
    std::cout.flush();  // CLI11 prints the help there
    if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0 && std::cout.good()) return status;
    return complain("standard output cannot be written", exit_bad_input);
}

int run(int argc, char** argv) {
    CLI::App app("Exact fused attention and its gradient on any CPU", "fascore");
    app.set_version_flag("--version", fmt::format("fascore {}", version));
    app.footer(footer);
    app.require_subcommand(1);
    Work chosen;
    for (const auto add : commands) add(app, chosen);
    std::string names;
    bool known = argc < 2 || argv[1][0] == '-';
    for (const CLI::App* command : app.get_subcommands({})) {
        known = known || command->get_name() == argv[1];
        names += (names.empty() ? "" : ", ") + command->get_name();
    }
    if (!known) return complain(fmt::format("COMMAND: {}, must be one of {}", argv[1], names), exit_bad_input);
    try {
        app.parse(argc, argv);
    } catch (const CLI::Success& asked) {  // --help, --version
        const int status = app.exit(asked) == 0 ? exit_right : exit_bad_input;
        return written(status);
    } catch (const CLI::ParseError& error) {
        return complain(fmt::format("{} (see fascore --help)", parse_error_text(error)), exit_bad_input);
    }
    return written(chosen());
}

}  // namespace
}  // namespace fascore::cli

int main(int argc, char** argv) {
    using namespace fascore::cli;
    install_interrupt_handler();
    try {
        return run(argc, argv);
    } catch (const Failure& failure) {
        return complain(failure.what(), failure.exit_status());
    } catch (const std::bad_alloc&) {
        return complain("out of memory: the problem is larger than this machine can hold", exit_bad_input);
    } catch (const std::exception& error) {
        return complain(error.what(), exit_bad_input);
    }
}
