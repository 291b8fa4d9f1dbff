target triple = "x86_64-unknown-linux-gnu"

declare i32 @shunt_cpu_id()

define i32 @f(ptr %ctx, ptr %prog) {
  %c = call i32 @shunt_cpu_id()
  %r = call i32 %prog(ptr %ctx), !shunt.dispatch !0
  %x = add i32 %c, %r
  ret i32 %x
}

!0 = !{!"xdp"}
