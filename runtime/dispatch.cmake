# Dispatchers: plans, patching, the registry, stubs in host images.
set(RUNTIME_DISPATCH plan.c sample_tree.c patch.c dispatcher.c dispatcher_update.c adopt.c call.c draw.c hook.c miss.c reader.c token.c)
