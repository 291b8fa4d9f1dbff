/* SPDX-License-Identifier: MIT */
/* Dispatchers defined in a host's own text; included by shunt/dispatcher.h. */
#ifndef SHUNT_DISPATCHER_DEFINE_H
#define SHUNT_DISPATCHER_DEFINE_H
#endif
