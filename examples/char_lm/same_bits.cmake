# SPDX-License-Identifier: Apache-2.0
#
# Trains once per number of threads and compares what the attention of the trained model saw and gave, byte by byte.
#   cmake -D program=... -D arguments=... -D threads=1;2 -D out=DIR -P same_bits.cmake
list(REMOVE_ITEM program "")
set(first "")
foreach(count IN LISTS threads)
    set(file ${out}/same_bits_${count}.safetensors)
    execute_process(COMMAND ${program} ${arguments} --threads ${count} --capture ${file}
                    OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
    file(SHA256 ${file} sum)
    message("threads ${count}: ${sum}")
    if(first AND NOT sum STREQUAL first)
        message(FATAL_ERROR "the bits depend on the number of threads")
    endif()
    set(first ${sum})
endforeach()
