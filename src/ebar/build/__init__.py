"""From a configuration to objects. Classes never see a configuration: it is unpacked here into plain arguments."""
