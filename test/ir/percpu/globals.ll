; Per-CPU globals: accesses are this CPU's, what shunt_percpu_* gets is the per-CPU pointer. Just-in-time only declarations, whose address
; is the host's object; ahead of time every variable of the section, at a distance from the image that a constructor fills in.
; RUN: %shunt-opt -p 'shunt-percpu<cpu=rseq:2340>' %s -o %t.ll
; RUN: %FileCheck %s --check-prefixes=CHECK,JIT < %t.ll
; RUN: %shunt-opt -p 'shunt-percpu<cpu=rseq:2340>' --stats %s 2>&1 | %FileCheck %s --check-prefix=COUNTS
; COUNTS: percpu_globals 2
; RUN: %shunt-opt -p 'shunt-percpu<cpu=rseq:2340>' %t.ll -o %t.again.ll
; RUN: grep -v ModuleID %t.ll > %t.1 && grep -v ModuleID %t.again.ll > %t.2 && cmp %t.1 %t.2
; RUN: %shunt-opt -p 'shunt-percpu<cpu=rseq>' %s -o %t.ll
; RUN: %FileCheck %s --check-prefixes=CHECK,AOT < %t.ll
; RUN: %shunt-opt -p 'shunt-percpu<cpu=rseq>' %t.ll -o %t.again.ll
; RUN: grep -v ModuleID %t.ll > %t.1 && grep -v ModuleID %t.again.ll > %t.2 && cmp %t.1 %t.2
; RUN: %shunt-opt -p 'shunt-percpu<cpu=rseq:2340;rmw=exact>' %s | %FileCheck %s --check-prefix=EXACT
target triple = "x86_64-unknown-linux-gnu"

; JIT: @hits = external global i64{{$}}
; JIT: @table = global [4 x i32] [i32 1, i32 2, i32 3, i32 4], section ".percpu"
; AOT: @hits = external global i64, section "shunt_percpu"
; AOT: @table = global [4 x i32] [i32 1, i32 2, i32 3, i32 4], section "shunt_percpu"
; AOT: @shunt_percpu_delta = linkonce_odr hidden global i64 0, comdat, align 8
; AOT: @llvm.global_ctors = appending global [2 x { i32, ptr, ptr }] [{ i32, ptr, ptr } { i32 7, ptr @first, ptr null }, { i32, ptr, ptr } { i32 0, ptr @shunt_percpu_setup, ptr null }]
@hits = external global i64, section ".percpu"
@pair = external global { i64, i64 }, section ".percpu"
@table = global [4 x i32] [i32 1, i32 2, i32 3, i32 4], section ".percpu"
@plain = global i64 0
@llvm.global_ctors = appending global [1 x { i32, ptr, ptr }] [{ i32, ptr, ptr } { i32 7, ptr @first, ptr null }]
declare i64 @shunt_percpu_sum64(ptr)
declare void @take(ptr)

define void @first() {
  ret void
}

; CHECK-LABEL: @count(
; AOT: [[DELTA:%.*]] = load i64, ptr @shunt_percpu_delta
; AOT: [[UNIT0:%.*]] = getelementptr i8, ptr @hits, i64 [[DELTA]]
; CHECK: [[FAR:%.*]] = ashr exact i64 {{.*}}, 4
; JIT: [[COPY:%.*]] = getelementptr inbounds i8, ptr @hits, i64 [[FAR]]
; AOT: [[COPY:%.*]] = getelementptr inbounds i8, ptr [[UNIT0]], i64 [[FAR]]
; CHECK: load i64, ptr [[COPY]]
; CHECK: store i64 {{.*}}, ptr
; CHECK: ret void
; EXACT-LABEL: @count(
; EXACT: addq {{.*}}(ptr @hits, i64 1)
define void @count() {
  %v = load i64, ptr @hits, align 8
  %v1 = add i64 %v, 1
  store i64 %v1, ptr @hits, align 8
  ret void
}

; A constant made of the address; the other word is as good.
; CHECK-LABEL: @second(
; CHECK: [[WORD:%.*]] = getelementptr { i64, i64 }, ptr {{%.*}}, i32 0, i32 1
; CHECK: load i64, ptr [[WORD]]
; EXACT-LABEL: @second(
; EXACT: addq {{.*}}(ptr getelementptr (i8, ptr @pair, i64 8), i64 4)
define void @second() {
  %v = load i64, ptr getelementptr ({ i64, i64 }, ptr @pair, i32 0, i32 1), align 8
  %v1 = add i64 %v, 4
  store i64 %v1, ptr getelementptr ({ i64, i64 }, ptr @pair, i32 0, i32 1), align 8
  ret void
}

; CHECK-LABEL: @whole(
; JIT: call i64 @shunt_percpu_sum64(ptr @hits)
; AOT: [[UNIT0:%.*]] = getelementptr i8, ptr @hits, i64
; AOT: call i64 @shunt_percpu_sum64(ptr [[UNIT0]])
; CHECK: call void @take(ptr {{%.*}})
define i64 @whole() {
  %sum = call i64 @shunt_percpu_sum64(ptr @hits)
  call void @take(ptr @hits)
  ret i64 %sum
}

; The address of a part, for a function that takes per-CPU pointers.
; CHECK-LABEL: @part(
; JIT: [[AT:%.*]] = getelementptr { i64, i64 }, ptr @pair, i64 %i
; AOT: [[UNIT0:%.*]] = getelementptr i8, ptr @pair, i64
; AOT: [[AT:%.*]] = getelementptr { i64, i64 }, ptr [[UNIT0]], i64 %i
; CHECK: call i64 @shunt_percpu_sum64(ptr [[AT]])
define i64 @part(i64 %i) {
  %p = getelementptr { i64, i64 }, ptr @pair, i64 %i
  %sum = call i64 @shunt_percpu_sum64(ptr %p)
  ret i64 %sum
}

; A phi's operand is made in the block that it comes from, once where that has two edges.
; CHECK-LABEL: @joined(
; CHECK: entry:
; CHECK: [[COPY:%.*]] = getelementptr inbounds i8
; CHECK: switch
; CHECK: phi ptr [ [[COPY]], %entry ], [ [[COPY]], %entry ], [ @plain, %other ]
define i64 @joined(i32 %n) {
entry:
  switch i32 %n, label %other [ i32 0, label %end
                                i32 1, label %end ]
other:
  br label %end
end:
  %p = phi ptr [ @hits, %entry ], [ @hits, %entry ], [ @plain, %other ]
  %v = load i64, ptr %p
  ret i64 %v
}

; AOT: define internal void @shunt_percpu_setup()
; AOT: call i32 @shunt_percpu_image(ptr @__start_shunt_percpu, ptr @__stop_shunt_percpu, ptr @shunt_percpu_delta)
