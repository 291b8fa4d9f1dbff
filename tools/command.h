/* SPDX-License-Identifier: MIT */
/* The commands of `shunt`. Each parses its own arguments and returns the process's exit status. */
#ifndef TOOLS_COMMAND_H
#define TOOLS_COMMAND_H

enum shunt_exit {
	SHUNT_EXIT_OK = 0,
	SHUNT_EXIT_FAILED = 1,  /* it was tried and failed, or the kernel disagrees */
	SHUNT_EXIT_USAGE = 2,
	SHUNT_EXIT_SKIPPED = 77, /* this machine cannot do it (kernel check without BPF rights): CTest's number for skipped */
};

int shunt_command_run(int argc, char **argv);
int shunt_command_compile(int argc, char **argv);
int shunt_command_dump(int argc, char **argv);
int shunt_command_doctor(int argc, char **argv);
int shunt_command_packs(int argc, char **argv);

#endif
