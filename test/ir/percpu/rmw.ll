; Which updates of per-CPU values become one exact operation; --rmw's default is to leave them as written.
; RUN: %shunt-opt -p 'shunt-percpu<cpu=rseq:2340;rmw=exact>' --maps=%S/Inputs/rmw.maps %s -o %t.ll
; RUN: %FileCheck %s < %t.ll
; RUN: %shunt-opt -p 'shunt-percpu<cpu=rseq:2340>' --maps=%S/Inputs/rmw.maps %s | %FileCheck %s --check-prefix=PLAIN
; RUN: %shunt-opt -p 'shunt-percpu<cpu=tp:-160;rmw=exact>' --maps=%S/Inputs/rmw.maps %s | %FileCheck %s --check-prefix=THREAD
; RUN: %shunt-opt -p 'shunt-percpu<cpu=call;rmw=exact>' --maps=%S/Inputs/rmw.maps %s | %FileCheck %s --check-prefix=CALL
; PLAIN-NOT: asm
; PLAIN-NOT: atomicrmw
target triple = "x86_64-unknown-linux-gnu"

@counts = external global i8
@hash = external global i8
@other = external global i8
declare ptr @shunt_map_lookup(ptr, ptr)
declare ptr @shunt_percpu_this(ptr)
declare i64 @_bpf_helper_ext_0005(i64, i64, i64, i64, i64)

; The operation is on CPU 0's address, in the thread's struct rseq: cpu_id at 2340, rseq_cs at 2344.
; CHECK-LABEL: @add(
; CHECK: [[VALUE0:%.*]] = getelementptr inbounds i8, ptr %values, i64
; CHECK: %v = load i64, ptr %p
; CHECK-NEXT: %v1 = add i64 %v, 1
; CHECK-NEXT: call { i64, i32 } asm sideeffect "{{.*}}__rseq_cs{{.*}}movq $0, %fs:2344{{.*}}movslq %fs:2340, $0{{.*}}addq ${3:q}, ($2, $0)\0A72:\0A
; CHECK-SAME: movl $$100, ${1:k}{{.*}}addq ${3:q}, ($2, $0)\0A82:\0Ajmp 72b{{.*}}decl ${1:k}\0Ajnz 77b\0A75:\0Alock; addq ${3:q}, -0x40000000($2)
; CHECK-SAME: (ptr [[VALUE0]], i64 1)
; CHECK-NEXT: store volatile i64 0, ptr addrspace(257) inttoptr (i64 2344 to ptr addrspace(257)), align 8
; CHECK-NEXT: ret void
; THREAD-LABEL: @add(
; THREAD: atomicrmw add ptr %p, i64 1 monotonic
; CALL-LABEL: @add(
; CALL: %p = call ptr @shunt_map_lookup
; CALL: atomicrmw add ptr %p, i64 1 monotonic
define void @add(ptr %key) {
  %p = call ptr @shunt_map_lookup(ptr @counts, ptr %key)
  %v = load i64, ptr %p
  %v1 = add i64 %v, 1
  store i64 %v1, ptr %p
  ret void
}

; CHECK-LABEL: @subtract_or_and_xor(
; CHECK: [[NEG:%.*]] = sub i64 0, %x
; CHECK: addq {{.*}}, i64 [[NEG]])
; CHECK: orq {{.*}}, i64 %x)
; CHECK: andq {{.*}}, i64 %x)
; CHECK: xorl ${3:k}{{.*}}, i32 7)
; CHECK-NOT: store {{i32|i64}}
; CHECK: ret void
define void @subtract_or_and_xor(ptr %key, i64 %x) {
  %p = call ptr @shunt_map_lookup(ptr @hash, ptr %key)
  %p1 = getelementptr i8, ptr %p, i64 8
  %p2 = getelementptr i64, ptr %p, i64 2
  %p3 = getelementptr { i64, i64, i64, i32, i32 }, ptr %p, i64 0, i32 4
  %a = load i64, ptr %p
  %a1 = sub i64 %a, %x
  store i64 %a1, ptr %p
  %b = load i64, ptr %p1
  %b1 = or i64 %x, %b
  store i64 %b1, ptr %p1
  %c = load i64, ptr %p2
  %c1 = and i64 %c, %x
  store i64 %c1, ptr %p2
  %d = load i32, ptr %p3
  %d1 = xor i32 %d, 7
  store i32 %d1, ptr %p3
  ret void
}

; Narrow ones, in registers of 32 bits.
; CHECK-LABEL: @narrow(
; CHECK: [[HALF:%.*]] = zext i16 %x to i32
; CHECK: orw ${3:w}{{.*}}, i32 [[HALF]])
; CHECK: addb ${3:b}{{.*}}, i32 255)
; CHECK-NOT: store {{i8|i16}}
; CHECK: ret void
; THREAD-LABEL: @narrow(
; THREAD: atomicrmw or ptr %p, i16 %x monotonic
; THREAD: atomicrmw add ptr %p2, i8 -1 monotonic
define void @narrow(ptr %key, i16 %x) {
  %p = call ptr @shunt_map_lookup(ptr @counts, ptr %key)
  %p2 = getelementptr i8, ptr %p, i64 3
  %v = load i16, ptr %p
  %v1 = or i16 %v, %x
  store i16 %v1, ptr %p
  %w = load i8, ptr %p2
  %w1 = zext i8 %w to i64
  %w2 = sub i64 %w1, 1
  %w3 = trunc i64 %w2 to i8
  store i8 %w3, ptr %p2
  ret void
}

; Registers of a BPF program: 64-bit integers, widened loads, truncated stores, two additions.
; CHECK-LABEL: @wide(
; CHECK: [[X:%.*]] = trunc i64 %x to i32
; CHECK: addl ${3:k}
; CHECK-NOT: store {{i32|i64}}
; CHECK: ret void
define void @wide(ptr %key, i64 %x) {
  %p = call ptr @shunt_map_lookup(ptr @counts, ptr %key)
  %r = ptrtoint ptr %p to i64
  %r4 = add i64 %r, 4
  %q = inttoptr i64 %r4 to ptr
  %v = load i32, ptr %q
  %w = zext i32 %v to i64
  %w1 = add i64 %w, 1
  %w2 = add i64 %x, %w1
  %t = trunc i64 %w2 to i32
  store i32 %t, ptr %q
  ret void
}

; Load in one block, store in another; both ends meet, the pointers in one phi and the values in another.
; CHECK-LABEL: @paired(
; CHECK: end:
; CHECK: [[AMOUNT:%.*]] = phi i64 [ 2, %a ], [ %x, %b ]
; CHECK: [[PLACE:%.*]] = phi ptr [ [[A0:%.*]], %a ], [ [[B0:%.*]], %b ]
; CHECK: addq {{.*}}(ptr [[PLACE]], i64 [[AMOUNT]])
; CHECK-NOT: store {{i32|i64}}
; CHECK: ret void
define void @paired(ptr %key, i1 %which, i64 %x) {
  br i1 %which, label %a, label %b
a:
  %p = call ptr @shunt_map_lookup(ptr @counts, ptr %key)
  %v = load i64, ptr %p
  %v1 = add i64 %v, 2
  br label %end
b:
  %q = call ptr @shunt_map_lookup(ptr @hash, ptr %key)
  %w = load i64, ptr %q
  %w1 = add i64 %w, %x
  br label %end
end:
  %sum = phi i64 [ %v1, %a ], [ %w1, %b ]
  %to = phi ptr [ %p, %a ], [ %q, %b ]
  store i64 %sum, ptr %to
  ret void
}

; An arm that writes back what it read adds nothing; a select likewise.
; CHECK-LABEL: @sometimes(
; CHECK: [[AMOUNT:%.*]] = select i1 %c, i64 %x, i64 0
; CHECK: addq {{.*}}, i64 [[AMOUNT]])
; CHECK: ret void
define void @sometimes(ptr %key, i1 %c, i64 %x) {
  %p = call ptr @shunt_map_lookup(ptr @counts, ptr %key)
  %v = load i64, ptr %p
  %v1 = add i64 %v, %x
  %s = select i1 %c, i64 %v1, i64 %v
  store i64 %s, ptr %p
  ret void
}

; As -O0 leaves it: the pointer in a slot of its own.
; CHECK-LABEL: @unoptimised(
; CHECK: addq
; CHECK-NOT: store i64
; CHECK: ret void
define void @unoptimised(ptr %key) {
  %slot = alloca ptr
  %p = call ptr @shunt_map_lookup(ptr @counts, ptr %key)
  store ptr %p, ptr %slot
  %p1 = load ptr, ptr %slot
  %v = load i64, ptr %p1
  %v1 = add i64 %v, 1
  %p2 = load ptr, ptr %slot
  store i64 %v1, ptr %p2
  ret void
}

; What runs between may be a clock, another map's update or a neighbour's; a per-CPU variable is as good as a map's value.
; CHECK-LABEL: @between(
; CHECK: addq
; CHECK: addq
; CHECK-NOT: store i64 %v1
; CHECK: ret void
define void @between(ptr %key, ptr %variable) {
  %p = call ptr @shunt_map_lookup(ptr @counts, ptr %key)
  %o = call ptr @shunt_map_lookup(ptr @other, ptr %key)
  %n = getelementptr i8, ptr %p, i64 8
  %v = load i64, ptr %p
  %t = call i64 @_bpf_helper_ext_0005(i64 0, i64 0, i64 0, i64 0, i64 0)
  store i64 %t, ptr %n
  store i64 %t, ptr %o
  %v1 = add i64 %v, 1
  store i64 %v1, ptr %p
  %mine = call ptr @shunt_percpu_this(ptr %variable)
  %w = load i64, ptr %mine, align 8
  %w1 = add i64 %w, 1
  store i64 %w1, ptr %mine, align 8
  ret void
}

; The program's own atomic operation must not be one beside restartable ones.
; PLAIN-LABEL: @atomic(
; PLAIN: atomicrmw add ptr %p, i64 3 seq_cst
; PLAIN-NOT: asm
; CHECK-LABEL: @atomic(
; CHECK-NOT: atomicrmw
; CHECK: addq {{.*}}, i64 3)
; CHECK: ret void
define void @atomic(ptr %key) {
  %p = call ptr @shunt_map_lookup(ptr @counts, ptr %key)
  %old = atomicrmw add ptr %p, i64 3 seq_cst
  ret void
}

; A select of two lookups.
; CHECK-LABEL: @chosen(
; CHECK: [[PLACE:%.*]] = select i1 %c, ptr %{{.*}}, ptr %{{.*}}
; CHECK: addq {{.*}}(ptr [[PLACE]], i64 1)
define void @chosen(ptr %key, i1 %c) {
  %p = call ptr @shunt_map_lookup(ptr @counts, ptr %key)
  %q = call ptr @shunt_map_lookup(ptr @hash, ptr %key)
  %r = select i1 %c, ptr %p, ptr %q
  %v = load i64, ptr %r
  %v1 = add i64 %v, 1
  store i64 %v1, ptr %r
  ret void
}
