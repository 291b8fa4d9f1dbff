/* SPDX-License-Identifier: MIT */
/* Parameters that a pipeline's text gives a pass. A new one is a line of the table in parameters.c. */
#ifndef PASSES_PARAMETERS_H
#define PASSES_PARAMETERS_H

#include <shunt/passes.h>

/* Reads text, what stands between < and > behind the pass's name, into options. 0; -EINVAL or -ENOMEM with a sentence in why. */
int shunt_pass_set_parameters(const char *pass, const char *text, size_t len, struct shunt_pass_options *options, char *why, size_t room);

#endif
