/* SPDX-License-Identifier: MIT */
/* What the reclaimer (grace.c) asks of the flavour of readers that the host chose beside bp. */
#ifndef RUNTIME_READER_H
#define RUNTIME_READER_H

#include <shunt/reader.h>

/* Returns when every section of that flavour that was open has ended; at once when there is no such flavour. */
void shunt_reader_synchronize(void);
/* The calling thread is inside a section of it. */
bool shunt_reader_is_reading(void);
/* Around a wait: a thread that counts as inside until it says otherwise (qsbr) says so. step_in takes what step_out returned. */
bool shunt_reader_step_out(void);
void shunt_reader_step_in(bool stepped_out);
void shunt_reader_fork_prepare(void);
void shunt_reader_fork_parent(void);
void shunt_reader_fork_child(void);
/* True in a fork's child that cannot wait for readers; check says so (-ENOTSUP). */
bool shunt_reader_is_lost(void);
int shunt_reader_check(const char *what);

#endif
