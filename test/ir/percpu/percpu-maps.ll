; Per-CPU arrays and hashes, for this CPU and for a given one; plain hashes.
; RUN: %shunt-opt --passes=shunt-percpu --maps=%S/Inputs/maps.txt --cpu=tp:8 --nr-cpus=4 %s -o %t.ll
; RUN: %FileCheck %s --check-prefixes=CHECK,X86 < %t.ll
; RUN: sed -e 's/x86_64/aarch64/' %s | %shunt-opt --passes=shunt-percpu --maps=%S/Inputs/maps.txt --cpu=tp:8 --nr-cpus=4 - | %FileCheck %s --check-prefixes=CHECK,ARM
; RUN: %shunt-opt --passes=shunt-percpu --maps=%S/Inputs/maps.txt --cpu=tp:8 --nr-cpus=4 %t.ll -o %t.again.ll
; RUN: grep -v ModuleID %t.ll > %t.1 && grep -v ModuleID %t.again.ll > %t.2 && cmp %t.1 %t.2
; Without a source of the CPU number the forms of this CPU stay calls, the others do not.
; RUN: %shunt-opt --passes=shunt-percpu --maps=%S/Inputs/maps.txt --cpu=call --nr-cpus=4 --stats %s 2>&1 | %FileCheck %s --check-prefix=CALL
; CALL: percpu_array_lookups 1
; CALL: percpu_hash_lookups 1
; CALL: hash_lookups 2
; CALL: missed 5
target triple = "x86_64-unknown-linux-gnu"

@percpu = external global i8
@percpu_hash = external global i8
@lru_percpu = external global i8
@hash = external global i8
@lru = external global i8
@trie = external global i8
declare ptr @shunt_map_lookup(ptr, ptr)
declare ptr @shunt_map_lookup_of(ptr, ptr, i32)

; CHECK-LABEL: define ptr @percpu_array(
; CHECK-NEXT: %key = load i32, ptr %k, align 1
; CHECK-NEXT: [[IN:%.*]] = icmp ult i32 %key, 256
; CHECK-NEXT: [[WIDE:%.*]] = zext i32 %key to i64
; CHECK-NEXT: [[OFF:%.*]] = mul i64 [[WIDE]], 8
; CHECK-NEXT: [[PTR:%.*]] = getelementptr inbounds i8, ptr inttoptr (i64 2097152 to ptr), i64 [[OFF]]
; CHECK: %cpu = load i32
; X86-NEXT: [[CPU:%.*]] = zext i32 %cpu to i64
; X86-NEXT: [[HIGH:%.*]] = shl i64 [[CPU]], 34
; X86-NEXT: [[FAR:%.*]] = ashr exact i64 [[HIGH]], 4
; ARM-NEXT: [[CPU:%.*]] = sext i32 %cpu to i64
; ARM-NEXT: [[FAR:%.*]] = shl i64 [[CPU]], 30
; CHECK-NEXT: [[COPY:%.*]] = getelementptr inbounds i8, ptr [[PTR]], i64 [[FAR]]
; CHECK-NEXT: %value = select i1 [[IN]], ptr [[COPY]], ptr null
define ptr @percpu_array(ptr %k) {
  %value = call ptr @shunt_map_lookup(ptr @percpu, ptr %k)
  ret ptr %value
}

; CHECK-LABEL: define ptr @percpu_array_of(
; CHECK-NEXT: [[IS:%.*]] = icmp ult i32 %cpu, 4
; CHECK-NEXT: %key = load i32, ptr %k, align 1
; CHECK-NEXT: [[IN:%.*]] = icmp ult i32 %key, 256
; CHECK-NEXT: [[BOTH:%.*]] = and i1 [[IN]], [[IS]]
; CHECK: [[CPU:%.*]] = zext i32 %cpu to i64
; CHECK-NEXT: [[FAR:%.*]] = shl i64 [[CPU]], 30
; CHECK-NEXT: [[COPY:%.*]] = getelementptr inbounds i8, ptr {{%.*}}, i64 [[FAR]]
; CHECK-NEXT: %value = select i1 [[BOTH]], ptr [[COPY]], ptr null
define ptr @percpu_array_of(ptr %k, i32 %cpu) {
  %value = call ptr @shunt_map_lookup_of(ptr @percpu, ptr %k, i32 %cpu)
  ret ptr %value
}

; The step is taken from NULL as well, but select does not let it out.
; CHECK-LABEL: define ptr @in_percpu_hash(
; CHECK-NEXT: [[FOUND:%.*]] = call ptr @shunt_map_find_percpu.8.in_percpu_hash(ptr @percpu_hash, ptr %k)
; CHECK-NEXT: [[IN:%.*]] = icmp ne ptr [[FOUND]], null
; X86: [[CPU:%.*]] = zext i32 %cpu to i64
; X86-NEXT: [[HIGH:%.*]] = shl i64 [[CPU]], 34
; X86-NEXT: [[FAR:%.*]] = ashr exact i64 [[HIGH]], 4
; ARM: [[CPU:%.*]] = sext i32 %cpu to i64
; ARM-NEXT: [[FAR:%.*]] = shl i64 [[CPU]], 30
; CHECK-NEXT: [[COPY:%.*]] = getelementptr inbounds i8, ptr [[FOUND]], i64 [[FAR]]
; CHECK-NEXT: %value = select i1 [[IN]], ptr [[COPY]], ptr null
; CHECK: call ptr @shunt_map_find_percpu(ptr @lru_percpu, ptr %k)
define ptr @in_percpu_hash(ptr %k) {
  %value = call ptr @shunt_map_lookup(ptr @percpu_hash, ptr %k)
  %other = call ptr @shunt_map_lookup(ptr @lru_percpu, ptr %k)
  ret ptr %value
}

; CHECK-LABEL: define ptr @percpu_hash_of(
; CHECK-NEXT: [[IS:%.*]] = icmp ult i32 %cpu, 4
; CHECK-NEXT: [[FOUND:%.*]] = call ptr @shunt_map_find_percpu.8.percpu_hash_of(ptr @percpu_hash, ptr %k)
; CHECK-NEXT: [[IN:%.*]] = icmp ne ptr [[FOUND]], null
; CHECK-NEXT: [[BOTH:%.*]] = and i1 [[IN]], [[IS]]
; CHECK: %value = select i1 [[BOTH]]
define ptr @percpu_hash_of(ptr %k, i32 %cpu) {
  %value = call ptr @shunt_map_lookup_of(ptr @percpu_hash, ptr %k, i32 %cpu)
  ret ptr %value
}

; Bundles and attributes of the call stay on the call that is left of it.
; CHECK-LABEL: define ptr @hashes(
; CHECK-NEXT: %a = notail call ptr @shunt_map_find_hash(ptr @hash, ptr %k) #{{[0-9]+}} [ "deopt"(i32 7) ]
; CHECK-NEXT: %b = call ptr @shunt_map_find_hash(ptr @lru, ptr %k)
define ptr @hashes(ptr %k) {
  %a = notail call ptr @shunt_map_lookup(ptr @hash, ptr %k) "site" [ "deopt"(i32 7) ]
  %b = call ptr @shunt_map_lookup(ptr @lru, ptr %k)
  ret ptr %b
}

; CHECK-LABEL: define ptr @left(
; CHECK-NEXT: %a = call ptr @shunt_map_lookup(ptr @trie, ptr %k)
; CHECK-NEXT: %b = call ptr @shunt_map_lookup_of(ptr @hash, ptr %k, i32 %cpu)
define ptr @left(ptr %k, i32 %cpu) {
  %a = call ptr @shunt_map_lookup(ptr @trie, ptr %k)
  %b = call ptr @shunt_map_lookup_of(ptr @hash, ptr %k, i32 %cpu)
  ret ptr %b
}

; CHECK: declare ptr @shunt_map_find_percpu(ptr, ptr nocapture readonly)
