// SPDX-License-Identifier: Apache-2.0
//
// fascore info: what this build has, what this machine can run of it, what is chosen and why.
#include <fmt/format.h>

#include <memory>
#include <string>

#include "command.h"
#include "fascore/info.h"
#include "fascore/version.h"

namespace fascore::cli {
namespace {

std::string compiler_text() {
#if defined(__clang__)
    return fmt::format("Clang {}.{}.{}", __clang_major__, __clang_minor__, __clang_patchlevel__);
#elif defined(__GNUC__)
    return fmt::format("GCC {}.{}.{}", __GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__);
#else
    return "unknown";
#endif
}

int info(const std::string& request) {
    std::string isa;
    std::string why;
    require(select_isa(request, isa, why));
    int threads = 0;
    require(default_threads(threads));

    fmt::print("fascore {}\n\ncompiler   {}\nthreads    {}\nisa        {}: {}\n\nISAs of this build, best first\n",
               version, compiler_text(), threads, isa, why);
    for (const IsaInfo& built : built_isas()) {
        fmt::print("  {} {:<12} {:<13} needs {}\n", built.name == isa ? '*' : ' ', built.name,
                   built.runnable ? "runs here" : "cannot run", built.needs);
    }
    fmt::print("\nEnvironment variables\n");
    for (const EnvironmentVariable& variable : environment_variables()) {
        fmt::print("  {:<20} {}\n  {:<20} {}\n", variable.name,
                   variable.set ? fmt::format("= \"{}\"", variable.value) : std::string("not set"), "", variable.help);
    }
    return exit_right;
}

constexpr const char* examples = R"(Examples:
  fascore info
  FASCORE_ISA=avx2 fascore info
  fascore info --isa avx512     can it be chosen here? exit status 2 when not, with the reason)";

}  // namespace

void add_info(CLI::App& parent, Work& chosen) {
    const auto isa = std::make_shared<std::string>();
    CLI::App* command = parent.add_subcommand("info", "ISAs built and chosen, threads, environment variables");
    command->add_option("--isa", *isa, "The choice to explain; default: FASCORE_ISA, else the best")->type_name("NAME");
    command->footer(examples);
    command->callback([isa, &chosen] { chosen = [isa] { return info(*isa); }; });
}

}  // namespace fascore::cli
