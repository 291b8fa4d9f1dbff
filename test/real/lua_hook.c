/* SPDX-License-Identifier: MIT */
/* The hook of Lua's calls of C functions, and the base library's functions attached to it when the host starts. */
#include <stdio.h>
#include <shunt/dispatcher.h>
#include <shunt/log.h>
#include "lauxlib.h"
#include "lua.h"
#include "lualib.h"

SHUNT_DISPATCHER_DEFINE(lua_c, int, (void *state));

static __attribute__((constructor)) void attach(void)
{
	static const lua_CFunction functions[] = { luaopen_base, luaopen_string, luaopen_table, luaopen_math };
	lua_State *state = luaL_newstate();

	for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++)
		if (shunt_dispatcher_attach(shunt_dispatcher_lua_c(), (const void *)functions[i]))
			fprintf(stderr, "%s\n", shunt_error());
	if (!state)
		return;
	/* The functions that scripts call most, by what the libraries register. */
	luaL_openlibs(state);
	lua_getglobal(state, "string");
	lua_getfield(state, -1, "format");
	if (shunt_dispatcher_attach(shunt_dispatcher_lua_c(), (const void *)lua_tocfunction(state, -1)))
		fprintf(stderr, "%s\n", shunt_error());
	lua_getglobal(state, "ipairs");
	if (shunt_dispatcher_attach(shunt_dispatcher_lua_c(), (const void *)lua_tocfunction(state, -1)))
		fprintf(stderr, "%s\n", shunt_error());
	lua_close(state);
}
