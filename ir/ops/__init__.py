"""Every op family; importing this fills the registry and the operators of Node."""
