; Per-CPU variables: this CPU's copy by a signed number, a given CPU's by an unsigned one with a bound.
; RUN: %shunt-opt --passes=shunt-percpu --cpu=tp:-160 --nr-cpus=48 %s | %FileCheck %s --check-prefixes=ALL,X86,KNOWN
; RUN: %shunt-opt --passes=shunt-percpu --cpu=tp:-160 %s | %FileCheck %s --check-prefixes=ALL,X86,CALLED
; RUN: sed -e 's/x86_64/aarch64/' %s | %shunt-opt --passes=shunt-percpu --cpu=tp:-160 --nr-cpus=48 - | %FileCheck %s --check-prefixes=ALL,ARM,KNOWN
; RUN: %shunt-opt --passes=shunt-percpu --cpu=call --nr-cpus=48 %s | %FileCheck %s --check-prefix=CALL
target triple = "x86_64-unknown-linux-gnu"

declare ptr @shunt_percpu_this(ptr)
declare ptr @shunt_percpu_of(ptr, i32)

; ALL-LABEL: define ptr @this(
; ALL: [[CPU:%.*]] = load i32
; X86-NEXT: [[WIDE:%.*]] = zext i32 [[CPU]] to i64
; X86-NEXT: [[HIGH:%.*]] = shl i64 [[WIDE]], 34
; X86-NEXT: [[FAR:%.*]] = ashr exact i64 [[HIGH]], 4
; ARM-NEXT: [[WIDE:%.*]] = sext i32 [[CPU]] to i64
; ARM-NEXT: [[FAR:%.*]] = shl i64 [[WIDE]], 30
; ALL-NEXT: %copy = getelementptr inbounds i8, ptr %p, i64 [[FAR]]
; ALL-NEXT: ret ptr %copy
; CALL-LABEL: define ptr @this(
; CALL-NEXT: call ptr @shunt_percpu_this(ptr %p)
define ptr @this(ptr %p) {
  %copy = call ptr @shunt_percpu_this(ptr %p)
  ret ptr %copy
}

; ALL-LABEL: define ptr @of(
; CALLED-NEXT: %nr.cpus = call i32 @shunt_nr_cpus()
; CALLED-NEXT: [[IN:%.*]] = icmp ult i32 %cpu, %nr.cpus
; KNOWN-NEXT: [[IN:%.*]] = icmp ult i32 %cpu, 48
; ALL-NEXT: [[WIDE:%.*]] = zext i32 %cpu to i64
; ALL-NEXT: [[FAR:%.*]] = shl i64 [[WIDE]], 30
; ALL-NEXT: [[PTR:%.*]] = getelementptr inbounds i8, ptr %p, i64 [[FAR]]
; ALL-NEXT: %copy = select i1 [[IN]], ptr [[PTR]], ptr null
; CALL-LABEL: define ptr @of(
; CALL-NEXT: icmp ult i32 %cpu, 48
define ptr @of(ptr %p, i32 %cpu) {
  %copy = call ptr @shunt_percpu_of(ptr %p, i32 %cpu)
  ret ptr %copy
}

; Registers in place of pointers, as front ends without types have them.
; ALL-LABEL: define i64 @registers(
; ALL-NEXT: [[P:%.*]] = inttoptr i64 %p to ptr
; ALL: getelementptr inbounds i8, ptr [[P]]
; ALL: ptrtoint ptr {{.*}} to i64
define i64 @registers(i64 %p) {
  %copy = call i64 @shunt_percpu_this(i64 %p)
  ret i64 %copy
}

; A musttail call is followed by its return: straight-line code may stand there.
; ALL-LABEL: define ptr @tail(
; ALL-NOT: musttail
; ALL: ret ptr
define ptr @tail(ptr %p) {
  %copy = musttail call ptr @shunt_percpu_this(ptr %p)
  ret ptr %copy
}

; Too few arguments, another convention, a floating-point number: not what the header declares.
; ALL-LABEL: define void @odd(
; ALL-NEXT: call ptr @shunt_percpu_this()
; ALL-NEXT: call fastcc ptr @shunt_percpu_this(ptr %p)
; ALL-NEXT: call ptr @shunt_percpu_this(double 0.000000e+00)
define void @odd(ptr %p) {
  call ptr @shunt_percpu_this()
  call fastcc ptr @shunt_percpu_this(ptr %p)
  call ptr @shunt_percpu_this(double 0.0)
  ret void
}

; CALLED: declare i32 @shunt_nr_cpus() [[ATTR:#[0-9]+]]
; CALLED: attributes [[ATTR]] = { nounwind willreturn memory(none) }
