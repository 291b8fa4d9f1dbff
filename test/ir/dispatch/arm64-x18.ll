; arm64: where x18 belongs to the platform or to a shadow call stack, LLVM would overwrite it without an error.
; RUN: %shunt-opt --passes=shunt-dispatch %s | %FileCheck %s --check-prefix=LINUX
; RUN: sed -e 's/aarch64-unknown-linux-gnu/aarch64-linux-android30/' %s | %shunt-opt --passes=shunt-dispatch - | %FileCheck %s --check-prefix=TAKEN
; RUN: sed -e 's/aarch64-unknown-linux-gnu/arm64-apple-macosx14.0.0/' %s | %shunt-opt --passes=shunt-dispatch - | %FileCheck %s --check-prefix=TAKEN
; RUN: sed -e 's/aarch64-unknown-linux-gnu/aarch64-pc-windows-msvc/' %s | %shunt-opt --passes=shunt-dispatch - | %FileCheck %s --check-prefix=TAKEN
; RUN: sed -e 's/aarch64-unknown-linux-gnu/x86_64-unknown-linux-gnu/' %s | %shunt-opt --passes=shunt-dispatch - | %FileCheck %s --check-prefix=X86
; TAKEN-NOT: @shunt_stub
target triple = "aarch64-unknown-linux-gnu"

; LINUX-LABEL: define i32 @plain(
; LINUX: call i32 @shunt_stub.xdp(
define i32 @plain(ptr %ctx, ptr %prog) {
  %r = call i32 %prog(ptr %ctx), !shunt.dispatch !0
  ret i32 %r
}

; LINUX-LABEL: define i32 @shadow(
; LINUX: call i32 %prog(ptr %ctx), !shunt.dispatch
; X86-LABEL: define i32 @shadow(
; X86: call i32 @shunt_stub.xdp(
define i32 @shadow(ptr %ctx, ptr %prog) shadowcallstack {
  %r = call i32 %prog(ptr %ctx), !shunt.dispatch !0
  ret i32 %r
}

; LINUX-LABEL: define i32 @reserved(
; LINUX: call i32 %prog(ptr %ctx), !shunt.dispatch
define i32 @reserved(ptr %ctx, ptr %prog) "target-features"="+neon,+reserve-x18" {
  %r = call i32 %prog(ptr %ctx), !shunt.dispatch !0
  ret i32 %r
}

!0 = !{!"xdp"}
