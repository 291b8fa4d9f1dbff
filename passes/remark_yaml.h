/* SPDX-License-Identifier: MIT */
/* Remarks as LLVM's YAML documents, which opt-viewer, llvm-opt-report and llvm-remarkutil read. */
#ifndef PASSES_REMARK_YAML_H
#define PASSES_REMARK_YAML_H

#include <shunt/passes.h>

/* The document of one remark, to free(); NULL: out of memory. */
SHUNT_API char *shunt_remark_to_yaml(const struct shunt_remark *remark);

#endif
