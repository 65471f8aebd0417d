// `neuroncore._native`: what is too slow in Python about millions of instructions. Each function has a plain twin in
// Python that gives the same result and serves where this extension is not built.
#include "columns.h"

PYBIND11_MODULE(_native, module) {
  module.def("expand", &neuroncore::expand, pybind11::arg("body"), pybind11::arg("places"), pybind11::arg("sizes"),
             pybind11::arg("roles"), pybind11::arg("derive"), pybind11::arg("dma_increment"));
  module.def("play", &neuroncore::play, pybind11::arg("columns"), pybind11::arg("costs"), pybind11::arg("rates"));
}
