#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A host in another language: Python functions become programs of a dispatcher, and Python calls programs, by ctypes alone.

usage: dispatch_callback.py LIBSHUNT.so
"""
import ctypes
import sys
import threading
from ctypes import POINTER, byref, c_char_p, c_double, c_int32, c_int8, c_float, c_uint16, c_uint32, c_uint64, c_void_p

VOID, U8, S8, U16, S16, U32, S32, U64, S64, F32, F64, PTR = range(12)
C_TYPES = {S8: c_int8, U16: c_uint16, U32: c_uint32, S32: c_int32, U64: c_uint64, F32: c_float, F64: c_double, PTR: c_void_p}
CALLBACK = ctypes.CFUNCTYPE(None, c_void_p, c_void_p, POINTER(c_void_p))


class Signature(ctypes.Structure):
    _fields_ = [("ret", c_int32), ("nr_args", c_uint32), ("args", c_int32 * 16)]


def signature(ret, *args):
    result = Signature(ret, len(args))
    for i, arg in enumerate(args):
        result.args[i] = arg
    return result


shunt = ctypes.CDLL(sys.argv[1])
shunt.shunt_error.restype = c_char_p
shunt.shunt_callback_program.restype = c_void_p
shunt.shunt_callback_program.argtypes = [c_void_p]
shunt.shunt_dispatcher_attach.argtypes = shunt.shunt_dispatcher_detach.argtypes = [c_void_p, c_void_p]
shunt.shunt_call.argtypes = [c_void_p, c_void_p, POINTER(Signature), POINTER(c_void_p), c_void_p]
shunt.shunt_callback_free.argtypes = [c_void_p, POINTER(c_uint64)]
shunt.shunt_token_wait.argtypes = [c_uint64]
shunt.shunt_dispatcher_create.argtypes = [c_char_p, c_void_p, POINTER(c_void_p)]
shunt.shunt_program_from_callback.argtypes = [c_void_p, POINTER(Signature), CALLBACK, c_void_p, POINTER(c_void_p)]


def must(err):
    assert err == 0, f"{err}: {shunt.shunt_error().decode()}"


class Program:
    """A Python function as a program."""

    def __init__(self, function, *types):
        self.signature = signature(*types)
        ret, args = types[0], types[1:]

        def run(_user, result, values):
            got = [ctypes.cast(values[i], POINTER(C_TYPES[t])).contents.value for i, t in enumerate(args)]
            value = function(*got)
            if ret != VOID:
                ctypes.cast(result, POINTER(C_TYPES[ret])).contents.value = value

        self.callback = CALLBACK(run)  # kept: freed with the program
        self.handle = c_void_p()
        must(shunt.shunt_program_from_callback(None, byref(self.signature), self.callback, None, byref(self.handle)))
        self.entry = shunt.shunt_callback_program(self.handle)

    def free(self):
        token = c_uint64()
        must(shunt.shunt_callback_free(self.handle, byref(token)))
        must(shunt.shunt_token_wait(token))


def call(dispatcher, program, *values):
    sig = program.signature
    cells = [C_TYPES[sig.args[i]](v) for i, v in enumerate(values)]
    pointers = (c_void_p * len(cells))(*[ctypes.cast(byref(c), c_void_p) for c in cells])
    result = C_TYPES[sig.ret]() if sig.ret != VOID else None
    shunt.shunt_read_begin()
    err = shunt.shunt_call(dispatcher, program.entry, byref(sig), pointers, byref(result) if result is not None else None)
    shunt.shunt_read_end()
    must(err)
    return None if result is None else result.value


dispatcher = c_void_p()
err = shunt.shunt_dispatcher_create(b"python", None, byref(dispatcher))
must(err)
probe = c_void_p()
if shunt.shunt_program_from_callback(None, byref(signature(VOID)), CALLBACK(lambda *a: None), None, byref(probe)) == -95:
    print("skipped:", shunt.shunt_error().decode())
    sys.exit(77)
must(shunt.shunt_callback_free(probe, None))

seen = []
programs = [
    (Program(lambda a, b: a + b, U32, U32, U32), (40, 2), 42),
    (Program(lambda a: -a, S8, S8), (100,), -100),
    (Program(lambda a: a * 3, S32, S32), (-7,), -21),
    (Program(lambda a, b, c: a * b + c, F64, F64, F32, U64), (1.5, 2.0, 4), 7.0),
    (Program(lambda *a: sum(a), F32, *[F32] * 12), tuple(range(12)), 66.0),
    (Program(lambda *a: sum(x << i for i, x in enumerate(a)), U64, *[U64] * 14), tuple([1] * 14), (1 << 14) - 1),
    (Program(lambda a: seen.append(a), VOID, U16), (65535,), None),
]
for attached in (False, True, False):
    for program, values, want in programs:
        got = call(dispatcher, program, *values)
        assert got == want, (got, want)
    for program, _, _ in programs:
        if not attached:
            must(shunt.shunt_dispatcher_attach(dispatcher, program.entry))
        else:
            must(shunt.shunt_dispatcher_detach(dispatcher, program.entry))
assert seen == [65535] * 3, seen
for program, values, want in programs:
    must(shunt.shunt_dispatcher_detach(dispatcher, program.entry))

# Another thread calls while programs come and go.
stop = False
bad = []
current = Program(lambda a: a + 1, U32, U32)


def caller():
    while not stop:
        if call(dispatcher, current, 1) != 2:
            bad.append(1)


thread = threading.Thread(target=caller)
thread.start()
for i in range(200):
    must(shunt.shunt_dispatcher_attach(dispatcher, current.entry))
    must(shunt.shunt_dispatcher_detach(dispatcher, current.entry))
stop = True
thread.join()
assert not bad

assert shunt.shunt_call(dispatcher, current.entry, byref(signature(U32, VOID)), None, None) == -22
assert shunt.shunt_call(dispatcher, current.entry, byref(signature(99)), None, None) == -22
assert shunt.shunt_call(dispatcher, current.entry, byref(signature(U32, U32)), None, None) == -22
for program, _, _ in programs:
    program.free()
current.free()
must(shunt.shunt_quiesce())
