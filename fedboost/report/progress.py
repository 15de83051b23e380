"""x"""
class Progress: pass
def summary(r): return r
