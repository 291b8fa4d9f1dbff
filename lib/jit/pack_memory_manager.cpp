/* SPDX-License-Identifier: MIT */
/*
 * JITLink on packs. LLVM 19 has no C API for JITLink, so this file is C++; it decides nothing, lib/jit/pack_memory.c does. A segment is
 * written at its block's rw address and linked for its rx address.
 */
#include "lib/jit/pack_memory_manager.h"

#include <memory>
#include <system_error>
#include <vector>
#include <llvm/ExecutionEngine/JITLink/JITLink.h>
#include <llvm/ExecutionEngine/JITLink/JITLinkMemoryManager.h>
#include <llvm/ExecutionEngine/JITLink/aarch64.h>
#include <llvm/ExecutionEngine/Orc/Core.h>
#include <llvm/ExecutionEngine/Orc/ObjectLinkingLayer.h>
#include <llvm/MC/MCSubtargetInfo.h>
#include <llvm/Support/MathExtras.h>
#include <llvm/Target/TargetMachine.h>
#include <shunt/log.h>
#include "lib/jit/pack_memory.h"

using namespace llvm;
using namespace llvm::jitlink;

namespace {

Error packError(const jit_linking_layer &Layer, int Err)
{
	Layer.failed(Layer.user, Err);
	return make_error<StringError>(shunt_error(), std::error_code(-Err, std::generic_category()));
}

/* What a FinalizedAlloc's address points to. */
struct LinkedObject {
	jit_memory *Memory;
	std::vector<orc::shared::WrapperFunctionCall> DeallocActions;
};

class PackMemoryManager final : public JITLinkMemoryManager {
public:
	explicit PackMemoryManager(const jit_linking_layer &Layer) : Layer(Layer) {}

	void allocate(const JITLinkDylib *JD, LinkGraph &G, OnAllocatedFunction OnAllocated) override;
	void deallocate(std::vector<FinalizedAlloc> Allocs, OnDeallocatedFunction OnDeallocated) override;
	using JITLinkMemoryManager::allocate;
	using JITLinkMemoryManager::deallocate;

private:
	class InFlight;
	const jit_linking_layer &Layer;
};

class PackMemoryManager::InFlight final : public JITLinkMemoryManager::InFlightAlloc {
public:
	InFlight(const jit_linking_layer &Layer, LinkGraph &G, jit_memory *Memory) : Layer(Layer), G(G), Memory(Memory) {}

	~InFlight() override
	{
		if (Memory)
			jit_memory_abandon(Memory);
	}

	void abandon(OnAbandonedFunction OnAbandoned) override
	{
		jit_memory_abandon(std::exchange(Memory, nullptr));
		OnAbandoned(Error::success());
	}

	void finalize(OnFinalizedFunction OnFinalized) override
	{
		Section *EHFrame = G.findSectionByName(".eh_frame");
		SectionRange Range = EHFrame ? SectionRange(*EHFrame) : SectionRange();

		for (const Symbol *Sym : G.defined_symbols())
			if (Sym->hasName() && Sym->isCallable())
				jit_memory_add_function(Memory, Sym->getName().data(), Sym->getName().size(),
							Sym->getAddress().toPtr<const void *>(), Sym->getSize());
		if (int Err = jit_memory_finalize(Memory, Range.getStart().toPtr<const void *>(), Range.getSize())) {
			jit_memory_abandon(std::exchange(Memory, nullptr));
			return OnFinalized(packError(Layer, Err));
		}
		auto Actions = orc::shared::runFinalizeActions(G.allocActions());
		if (!Actions) {
			/* Actions that ran may have made it known to others. */
			jit_memory_free(std::exchange(Memory, nullptr));
			return OnFinalized(Actions.takeError());
		}
		jit_memory_drop_transient(Memory);
		auto *Object = new LinkedObject{std::exchange(Memory, nullptr), std::move(*Actions)};
		OnFinalized(FinalizedAlloc(orc::ExecutorAddr::fromPtr(Object)));
	}

private:
	const jit_linking_layer &Layer;
	LinkGraph &G;
	jit_memory *Memory;
};

unsigned packProtection(orc::MemProt Prot)
{
	return ((Prot & orc::MemProt::Read) != orc::MemProt::None ? JIT_PROT_READ : 0) |
	       ((Prot & orc::MemProt::Write) != orc::MemProt::None ? JIT_PROT_WRITE : 0) |
	       ((Prot & orc::MemProt::Exec) != orc::MemProt::None ? JIT_PROT_EXEC : 0);
}

void PackMemoryManager::allocate(const JITLinkDylib *, LinkGraph &G, OnAllocatedFunction OnAllocated)
{
	BasicLayout Layout(G);
	jit_memory *Memory;

	if (int Err = jit_memory_create(Layer.arena, &Memory))
		return OnAllocated(packError(Layer, Err));
	auto Alloc = std::make_unique<InFlight>(Layer, G, Memory);
	for (auto &[Group, Segment] : Layout.segments()) {
		void *RW, *RX;

		if (int Err = jit_memory_add(Memory, packProtection(Group.getMemProt()),
					     Group.getMemLifetime() == orc::MemLifetime::Finalize,
					     Segment.ContentSize + Segment.ZeroFillSize, Segment.Alignment.value(), &RW, &RX))
			return OnAllocated(packError(Layer, Err));
		Segment.WorkingMem = static_cast<char *>(RW);
		Segment.Addr = orc::ExecutorAddr::fromPtr(RX);
		/* A code block arrives full of traps, and apply() writes contents only. */
		if (Segment.ZeroFillSize)
			memset(Segment.WorkingMem + Segment.ContentSize, 0, Segment.ZeroFillSize);
	}
	if (Error Err = Layout.apply())
		return OnAllocated(std::move(Err));
	OnAllocated(std::move(Alloc));
}

void PackMemoryManager::deallocate(std::vector<FinalizedAlloc> Allocs, OnDeallocatedFunction OnDeallocated)
{
	Error Result = Error::success();

	for (auto Alloc = Allocs.rbegin(); Alloc != Allocs.rend(); ++Alloc) {
		std::unique_ptr<LinkedObject> Object(Alloc->release().toPtr<LinkedObject *>());

		Result = joinErrors(std::move(Result), orc::shared::runDeallocActions(Object->DeallocActions));
		jit_memory_free(Object->Memory);
	}
	OnDeallocated(std::move(Result));
}

/* Where a stub that JITLink made for a call leads, or null. */
Symbol *stubTarget(const Edge &Call)
{
	if (!Call.getTarget().isDefined() || Call.getTarget().getBlock().getSection().getName() != aarch64::PLTTableManager::getSectionName())
		return nullptr;
	for (const Edge &ToGot : Call.getTarget().getBlock().edges()) {
		if (ToGot.getKind() != aarch64::Page21 || !ToGot.getTarget().isDefined())
			continue;
		for (const Edge &Pointer : ToGot.getTarget().getBlock().edges())
			if (Pointer.getKind() == aarch64::Pointer64 && Pointer.getAddend() == 0)
				return &Pointer.getTarget();
	}
	return nullptr;
}

/* LLVM 19 leaves every arm64 call of an external function on its stub. Addresses are final here, so those within reach go direct. */
Error callDirectly(LinkGraph &G)
{
	for (Block *B : G.blocks())
		for (Edge &E : B->edges()) {
			if (E.getKind() != aarch64::Branch26PCRel)
				continue;
			Symbol *Target = stubTarget(E);
			if (Target && isInt<28>(Target->getAddress() + E.getAddend() - B->getFixupAddress(E)))
				E.setTarget(*Target);
		}
	return Error::success();
}

class LinkPlugin final : public orc::ObjectLinkingLayer::Plugin {
public:
	explicit LinkPlugin(const jit_linking_layer &Layer) : Layer(Layer) {}

	void modifyPassConfig(orc::MaterializationResponsibility &, LinkGraph &G, PassConfiguration &Config) override
	{
		if (G.getTargetTriple().isAArch64())
			Config.PreFixupPasses.push_back(callDirectly);
		Config.PostFixupPasses.push_back([this](LinkGraph &G) {
			for (Symbol *Sym : G.defined_symbols())
				if (Sym->hasName())
					Layer.symbol(Layer.user, Sym->getName().data(), Sym->getName().size(),
						     Sym->getAddress().toPtr<void *>(), Sym->getSize());
			return Error::success();
		});
	}

	Error notifyFailed(orc::MaterializationResponsibility &) override { return Error::success(); }
	Error notifyRemovingResources(orc::JITDylib &, orc::ResourceKey) override { return Error::success(); }
	void notifyTransferringResources(orc::JITDylib &, orc::ResourceKey, orc::ResourceKey) override {}

private:
	const jit_linking_layer &Layer;
};

} // namespace

extern "C" LLVMOrcObjectLayerRef jit_create_linking_layer(void *layer, LLVMOrcExecutionSessionRef session, const char *)
{
	const auto &Layer = *static_cast<const jit_linking_layer *>(layer);
	auto &Session = *reinterpret_cast<orc::ExecutionSession *>(session);
	auto *Linking = new orc::ObjectLinkingLayer(Session, std::make_unique<PackMemoryManager>(Layer));

	Linking->addPlugin(std::make_shared<LinkPlugin>(Layer));
	return reinterpret_cast<LLVMOrcObjectLayerRef>(static_cast<orc::ObjectLayer *>(Linking));
}

extern "C" LLVMErrorRef jit_remove_dylib(LLVMOrcExecutionSessionRef session, LLVMOrcJITDylibRef dylib)
{
	return wrap(reinterpret_cast<orc::ExecutionSession *>(session)->removeJITDylib(*reinterpret_cast<orc::JITDylib *>(dylib)));
}

extern "C" bool jit_target_knows_cpu(LLVMTargetMachineRef machine, const char *cpu)
{
	return reinterpret_cast<TargetMachine *>(machine)->getMCSubtargetInfo()->isCPUStringValid(cpu);
}

extern "C" bool jit_target_knows_feature(LLVMTargetMachineRef machine, const char *name, size_t len)
{
	for (const SubtargetFeatureKV &Feature : reinterpret_cast<TargetMachine *>(machine)->getMCSubtargetInfo()->getAllProcessorFeatures())
		if (StringRef(name, len) == Feature.Key)
			return true;
	return false;
}
