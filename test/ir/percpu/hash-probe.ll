; The first probe of hashes with small keys: a function beside the caller, which LLVM inlines.
; RUN: %shunt-opt -p shunt-percpu --maps=%S/Inputs/probe.maps --cpu=tp:8 %s -o %t.ll
; RUN: %FileCheck %s < %t.ll
; RUN: %shunt-opt -p shunt-percpu --maps=%S/Inputs/probe.maps --cpu=tp:8 %t.ll | grep -v ModuleID > %t.again
; RUN: grep -v ModuleID %t.ll | diff - %t.again
; RUN: sed -e 's/x86_64/aarch64/' %s | %shunt-opt -p shunt-percpu --maps=%S/Inputs/probe.maps --cpu=tp:8 - | %FileCheck %s
; RUN: %llvm/opt -passes='default<O2>' -S %t.ll | %FileCheck %s --check-prefix=INLINED
; RUN: %llvm/opt -passes='default<O0>' -S %t.ll | %FileCheck %s --check-prefix=INLINED
; RUN: %shunt-opt -p 'shunt-percpu<hash-calls>' --maps=%S/Inputs/probe.maps --cpu=tp:8 %s | %FileCheck %s --check-prefix=CALLS
target triple = "x86_64-unknown-linux-gnu"

@hash4 = external global i8
@hash16 = external global i8
@percpu8 = external global i8
@hash5 = external global i8
@lru4 = external global i8
declare ptr @shunt_map_lookup(ptr, ptr)

; CALLS-NOT: alwaysinline
; CALLS: call ptr @shunt_map_find_hash(ptr @hash4, ptr %k)
; CALLS: call ptr @shunt_map_find_hash(ptr @hash16, ptr %k)
; CALLS: call ptr @shunt_map_find_percpu(ptr @percpu8, ptr %k)
; CHECK-LABEL: @f(
; CHECK-NEXT: %a = call ptr @shunt_map_find_hash.4.f(ptr @hash4, ptr %k)
; CHECK-NEXT: %b = call ptr @shunt_map_find_hash.4.f(ptr @hash4, ptr %a)
; CHECK-NEXT: %c = call ptr @shunt_map_find_hash.16.f(ptr @hash16, ptr %k)
; CHECK-NEXT: call ptr @shunt_map_find_percpu.8.f(ptr @percpu8, ptr %k)
; CHECK: call ptr @shunt_map_find_hash(ptr @hash5, ptr %k)
; CHECK-NEXT: call ptr @shunt_map_find_hash(ptr @lru4, ptr %k)
; INLINED-LABEL: @f(
; INLINED-NOT: call ptr @shunt_map_find_{{hash|percpu}}.{{[0-9]}}
; INLINED-COUNT-4: load atomic ptr, ptr {{.*}} acquire
; INLINED-NOT: call ptr @shunt_map_find_{{hash|percpu}}.{{[0-9]}}
; INLINED: declare
define ptr @f(ptr %k) #0 {
  %a = call ptr @shunt_map_lookup(ptr @hash4, ptr %k)
  %b = call ptr @shunt_map_lookup(ptr @hash4, ptr %a)
  %c = call ptr @shunt_map_lookup(ptr @hash16, ptr %k)
  %d = call ptr @shunt_map_lookup(ptr @percpu8, ptr %k)
  %e = call ptr @shunt_map_lookup(ptr @hash5, ptr %k)
  %g = call ptr @shunt_map_lookup(ptr @lru4, ptr %k)
  ret ptr %d
}

; CHECK-LABEL: @small(
; CHECK-NEXT: call ptr @shunt_map_find_hash(ptr @hash4, ptr %k)
define ptr @small(ptr %k) optsize {
  %a = call ptr @shunt_map_lookup(ptr @hash4, ptr %k)
  ret ptr %a
}

; In the map 48 is hash_key, 40 bucket_mask, 32 buckets; in an element 32 is the key.
; CHECK: define internal ptr @shunt_map_find_hash.4.f(ptr %0, ptr %1) #[[ATTRIBUTES:[0-9]+]]
; CHECK: [[KEY:%.*]] = load i32, ptr %1, align 1
; CHECK: getelementptr inbounds i8, ptr %0, i64 48
; CHECK: getelementptr inbounds i8, ptr %0, i64 40
; CHECK-NEXT: load i64, ptr {{%.*}}, align 8, !invariant.load
; CHECK: getelementptr inbounds i8, ptr %0, i64 32
; CHECK: %elem = load atomic ptr, ptr {{%.*}} acquire, align 8
; CHECK: br i1 {{%.*}}, label %end, label %compare
; CHECK: getelementptr inbounds i8, ptr %elem, i64 32
; CHECK: br i1 {{%.*}}, label %hit, label %rest, !prof
; CHECK: getelementptr inbounds i8, ptr %elem, i64 40
; CHECK: [[REST:%.*]] = call ptr @shunt_map_find_hash(ptr %0, ptr %1)
; CHECK: %found = phi ptr [ null, %probe ], [ {{%.*}}, %hit ], [ [[REST]], %rest ]
; CHECK-LABEL: define internal ptr @shunt_map_find_hash.16.f(
; CHECK: mul i128
; CHECK: getelementptr inbounds i8, ptr %elem, i64 48
; CHECK-LABEL: define internal ptr @shunt_map_find_percpu.8.f(
; CHECK: [[BODY:%.*]] = getelementptr inbounds i8, ptr %elem, i64 40
; CHECK-NEXT: load ptr, ptr [[BODY]], align 8
; CHECK: attributes #[[ATTRIBUTES]] = { alwaysinline nounwind willreturn "min-legal-vector-width"="256" }
attributes #0 = { "min-legal-vector-width"="256" }
