/* SPDX-License-Identifier: MIT */
/* What differs between CPUs under the packs: caches and the synchronisation of instruction fetch. */
#ifndef RUNTIME_MACHINE_H
#define RUNTIME_MACHINE_H

#include <stdbool.h>
#include <stddef.h>

/* True when written code needs cache maintenance and a SYNC_CORE before other CPUs may run it (arm64). */
bool shunt_machine_needs_finalize(void);

/* Makes len bytes written at rw visible to this CPU's instruction fetch at rx: cleans data by rw, invalidates instructions by rx.
 * The caller follows it by shunt_sync_core for the other CPUs. No-op where shunt_machine_needs_finalize() is false. */
void shunt_machine_sync_caches(const void *rx, const void *rw, size_t len);

/* The part of it that the architecture asks for; what an emulator needs besides is left out. */
void shunt_machine_maintain(const void *rx, const void *rw, size_t len);

/* What mprotect wants for code besides PROT_READ and PROT_EXEC: PROT_BTI where indirect branches can be made to land on `bti` only. */
int shunt_machine_guard_prot(void);

size_t shunt_machine_page_size(void);

/* A hint for mmap where len bytes may lie that no direct branch goes to: far from the images, whose neighbourhood belongs to code (that of
 * libraries which are loaded later, too). Another one each time; NULL when it has none left. */
void *shunt_machine_far_hint(size_t len);

#endif
