"""Eight bytes at a time."""
from __future__ import annotations
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

def _ptr(context, builder, array_type, array, at, bits):
    data = make_array(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [at]), ir.IntType(bits).as_pointer())

@intrinsic
def load_word(typingctx, array, at):
    sig = types.uint64(array, types.int64)
    def codegen(context, builder, signature, args):
        return builder.load(_ptr(context, builder, signature.args[0], args[0], args[1], 64), align=1)
    return sig, codegen

@intrinsic
def store_word(typingctx, array, at, value):
    sig = types.void(array, types.int64, types.uint64)
    def codegen(context, builder, signature, args):
        builder.store(args[2], _ptr(context, builder, signature.args[0], args[0], args[1], 64), align=1)
        return context.get_dummy_value()
    return sig, codegen
