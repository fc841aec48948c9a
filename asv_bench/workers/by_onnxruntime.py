"""onnxruntime: a graph of Gemm (or MatMul and Add) and Tanh, one thread, all graph optimisations on."""

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from workers import cases
from workers.cases import Work


def session(nodes, tensors, shape, result):
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(result, TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value, name) for name, value in tensors.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def pure(run, feed):
    def call():
        return run(None, feed)[0]

    return Work(call, call)


def net(layers, x, product):
    nodes, tensors, last = [], {}, "x"
    for i, (weight, bias) in enumerate(layers):
        tensors |= {f"w{i}": weight, f"b{i}": bias}
        nodes += product(last, i)
        nodes.append(helper.make_node("Tanh", [f"z{i}"], [f"h{i}"]))
        last = f"h{i}"
    return pure(session(nodes, tensors, x.shape, last).run, {"x": x})


def gemm(last, i):
    return [helper.make_node("Gemm", [last, f"w{i}", f"b{i}"], [f"z{i}"])]


def matmul(last, i):
    return [
        helper.make_node("MatMul", [last, f"w{i}"], [f"p{i}"]),
        helper.make_node("Add", [f"p{i}", f"b{i}"], [f"z{i}"]),
    ]


def policy(case):
    return net(*cases.policy(case), gemm)


def candidates(case):
    layers, x = cases.candidates()
    work = net([(weight, bias[:, None]) for weight, bias in layers], x[:, None], matmul)
    return Work(work.call, lambda: work.call()[:, 0])


def chain(case):
    nodes = []
    for i in range(10):
        nodes += [
            helper.make_node("Add", [f"y{i}" if i else "x", "a"], [f"s{i}"]),
            helper.make_node("Mul", [f"s{i}", "b"], [f"y{i + 1}"]),
        ]
    x = cases.drawn(10**6)
    tensors = {"a": np.array(1.5, np.float32), "b": np.array(0.5, np.float32)}
    return pure(session(nodes, tensors, x.shape, "y10").run, {"x": x})


def empty(case):
    x = np.zeros(3, np.float32)
    return pure(session([helper.make_node("Identity", ["x"], ["y"])], {}, x.shape, "y").run, {"x": x})


MAKERS = {
    **dict.fromkeys(cases.POLICIES, policy),
    cases.VMAP: candidates,
    cases.CHAIN: chain,
    cases.EMPTY: empty,
}
